//! The verdict on ids, and its reasons.

use super::Run;
use super::rules::Findings;
use crate::check::Verdict;
use std::collections::BTreeMap;
use std::fmt;

/// What the judge says of a run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is no pass: how often each rule was broken, or what did not happen.
    pub reasons: Vec<String>,
    /// The first places where a rule was broken.
    pub excerpts: Vec<String>,
    /// How many ids were seen.
    pub ids: u64,
    /// How many processes got some.
    pub processes: usize,
    /// How many generators were opened.
    pub generators: usize,
    /// How often there was an error instead of ids, by its kind.
    pub refusals: BTreeMap<String, usize>,
    /// What was broken how often.
    pub faults: BTreeMap<&'static str, usize>,
}

impl Report {
    pub(super) fn new(run: &Run, verdict: Verdict, findings: Findings, lacks: Vec<String>) -> Self {
        let mut reasons: Vec<String> =
            findings.broken.iter().map(|(rule, count)| format!("{rule}: {count}")).collect();
        if verdict == Verdict::Unknown {
            reasons.extend(lacks);
        }
        let got = |taker: &&super::Taker| taker.generators.iter().any(|ids| !ids.is_empty());
        let pieces = run.takers.iter().flat_map(|taker| taker.generators.iter().flatten());
        let mut refusals = BTreeMap::new();
        for refusal in run.takers.iter().flat_map(|taker| &taker.refusals) {
            *refusals.entry(refusal.kind.clone()).or_default() += 1;
        }
        Self {
            verdict,
            reasons,
            excerpts: findings.excerpts,
            ids: pieces.map(|piece| piece.last - piece.first + 1).sum(),
            processes: run.takers.iter().filter(got).count(),
            generators: run.takers.iter().map(|taker| taker.generators.len()).sum(),
            refusals,
            faults: run.faults.clone(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict)?;
        for reason in &self.reasons {
            writeln!(f, "  {reason}")?;
        }
        for excerpt in &self.excerpts {
            writeln!(f, "    {excerpt}")?;
        }
        let Self { ids, processes, generators, .. } = self;
        writeln!(f, "ids {ids}, processes {processes}, generators {generators}")?;
        for (kind, count) in &self.refusals {
            writeln!(f, "  refused {count}, {kind}")?;
        }
        for (word, count) in &self.faults {
            writeln!(f, "  {word} {count}")?;
        }
        Ok(())
    }
}
