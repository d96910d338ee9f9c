//! The verdict and its reasons.

use super::counters::Counters;
use super::demands::Demands;
use super::findings::{Findings, Rule, Violation};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// How many violations are printed, and how many lines of each.
const PRINTED: usize = 5;
const PRINTED_LINES: usize = 8;

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No rule was broken, and enough happened.
    Pass,
    /// A rule was broken.
    Fail,
    /// No rule was broken, but too little happened to tell.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Unknown => "UNKNOWN",
        })
    }
}

/// Everything the judge reports about a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is not a pass.
    pub reasons: Vec<String>,
    /// What happened in the run.
    pub counters: Counters,
    /// How often each rule was broken.
    pub broken: BTreeMap<Rule, usize>,
    /// The first hundred violations of each rule, earliest first.
    pub violations: Vec<Violation>,
}

impl Report {
    pub(crate) fn new(counters: Counters, findings: Findings<'_>, demands: &Demands) -> Self {
        let (broken, violations) = findings.finish();
        let (verdict, reasons) = if broken.is_empty() {
            let reasons = unmet(&counters, demands);
            (if reasons.is_empty() { Verdict::Pass } else { Verdict::Unknown }, reasons)
        } else {
            let reasons = broken.iter().map(|(rule, count)| format!("{rule}: {count}"));
            (Verdict::Fail, reasons.collect())
        };
        Self { verdict, reasons, counters, broken, violations }
    }

    /// Whether this rule was broken.
    #[must_use]
    pub fn breaks(&self, rule: Rule) -> bool {
        self.broken.contains_key(&rule)
    }
}

/// The minimums that were not reached.
fn unmet(counters: &Counters, demands: &Demands) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut least = |what: &str, seen: usize, wanted: usize| {
        if seen < wanted {
            reasons.push(format!("{what}: {seen}, wanted {wanted}"));
        }
    };
    least("clients that held", counters.clients, demands.clients);
    least("hand-overs", counters.hand_overs, demands.hand_overs);
    least("contended asks in %", counters.contended_percent(), demands.contended_percent);
    least("expiries while held", counters.expiries, demands.expiries);
    least("calls for ids", counters.id_calls, demands.id_calls);
    least("generators of ids", counters.generators, demands.generators);
    for (kind, wanted) in &demands.faults {
        let seen = counters.faults.get(kind).map_or(0, |count| count.holds);
        least(&format!("holds hit by {kind}"), seen, *wanted);
    }
    if demands.healed && !counters.healed {
        reasons.push("the run did not go on after its faults".to_owned());
    }
    reasons
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.verdict)?;
        for reason in &self.reasons {
            writeln!(formatter, "  because     {reason}")?;
        }
        let counters = &self.counters;
        let percent = counters.contended_percent();
        writeln!(formatter, "  holds       {} on {} names", counters.holds, counters.names)?;
        writeln!(formatter, "  clients     {}", counters.clients)?;
        let (passed, within) = (counters.hand_overs, counters.passed_on);
        writeln!(formatter, "  hand-overs  {passed}")?;
        writeln!(formatter, "  passed on   {within} of them within a process")?;
        writeln!(formatter, "  asks        {}, {percent} % contended", counters.asks)?;
        writeln!(formatter, "  expiries    {} while held", counters.expiries)?;
        for (kind, count) in &counters.faults {
            writeln!(formatter, "  {kind:<11} {}, hit {} holds", count.done, count.holds)?;
        }
        let (lost, off) = (counters.lost_writes, counters.fenced_off);
        writeln!(formatter, "  writes      {lost} lost without a fence, {off} stopped by one")?;
        if counters.id_calls > 0 {
            let Counters { ids, id_calls, generators, .. } = counters;
            writeln!(
                formatter,
                "  ids         {ids} in {id_calls} calls of {generators} generators"
            )?;
        }
        for violation in self.violations.iter().take(PRINTED) {
            writeln!(formatter, "{}: {}", violation.rule, violation.sentence)?;
            let lines = violation.records.iter().zip(&violation.lines);
            for (index, line) in lines.take(PRINTED_LINES) {
                writeln!(formatter, "  #{index:<9} {line}")?;
            }
            let more = violation.records.len().saturating_sub(PRINTED_LINES);
            if more > 0 {
                writeln!(formatter, "  and {more} more lines")?;
            }
        }
        let total: usize = self.broken.values().sum();
        if total > PRINTED {
            writeln!(formatter, "and {} more violations", total - PRINTED)?;
        }
        Ok(())
    }
}
