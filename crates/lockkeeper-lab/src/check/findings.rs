//! The violations that were found.

use crate::history::Record;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// How many violations of one rule are described; the rest are only counted. A completely broken
/// lock must not cost more to judge than a sound one.
const DESCRIBED: usize = 100;

/// Which promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// Holds that must exclude each other were active at the same time.
    Exclusion,
    /// A claim was believed to be valid again after its validity had ended.
    Resurrection,
    /// Two grants of a name have the same token.
    TokenTwice,
    /// A later grant does not have a greater token.
    TokenOrder,
    /// A write under a claim that was not granted, or with a token that is not the claim's.
    EffectWithoutGrant,
    /// A fenced resource accepted an older token after a newer one.
    EffectOrder,
    /// A fenced resource counted a write twice or not at all.
    EffectSequence,
    /// A fenced resource has lost a write that it acknowledged.
    LostWrite,
    /// A claim that came later was served before one that stood in the queue.
    Overtaken,
    /// A claim was not granted although all faults were over.
    Starved,
    /// A name was free, with someone waiting for it, for longer than anything explains.
    Stalled,
    /// A claim was left in the store.
    Leftover,
    /// A number was issued twice.
    IdTwice,
    /// A generator issued a number that is not greater than one it had issued before.
    IdOrder,
    /// The same between generators, where order across generators is promised.
    IdOrderAcross,
    /// The history contradicts itself: either the recorder is wrong, or what it records.
    History,
}

impl Rule {
    /// The rule in one or two words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion",
            Self::Resurrection => "resurrection",
            Self::TokenTwice => "token twice",
            Self::TokenOrder => "token order",
            Self::EffectWithoutGrant => "effect without grant",
            Self::EffectOrder => "effect order",
            Self::EffectSequence => "effect sequence",
            Self::LostWrite => "lost write",
            Self::Overtaken => "overtaken",
            Self::Starved => "starved",
            Self::Stalled => "stalled",
            Self::Leftover => "leftover",
            Self::IdTwice => "id twice",
            Self::IdOrder => "id order",
            Self::IdOrderAcross => "id order across",
            Self::History => "history",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// What happened, in one sentence.
    pub sentence: String,
    /// The records that show it, in order of time, as indexes into the history.
    pub records: Vec<usize>,
    /// The same records as lines of JSON.
    pub lines: Vec<String>,
}

/// Collects violations.
pub(crate) struct Findings<'a> {
    history: &'a [Record],
    found: BTreeMap<Rule, usize>,
    described: Vec<Violation>,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(history: &'a [Record]) -> Self {
        Self { history, found: BTreeMap::new(), described: Vec::new() }
    }

    /// Adds one; `describe` returns the sentence and the records, and is called only if needed.
    pub(crate) fn add(&mut self, rule: Rule, describe: impl FnOnce() -> (String, Vec<usize>)) {
        let found = self.found.entry(rule).or_default();
        *found += 1;
        if *found > DESCRIBED {
            return;
        }
        let (sentence, mut records) = describe();
        records.sort_by_key(|&index| (self.history[index].at, index));
        records.dedup();
        let lines = records
            .iter()
            .map(|&index| {
                let record = &self.history[index];
                serde_json::to_string(record).unwrap_or_else(|_| format!("{record:?}"))
            })
            .collect();
        self.described.push(Violation { rule, sentence, records, lines });
    }

    /// How many violations each rule has, and those that are described, earliest first.
    pub(crate) fn finish(mut self) -> (BTreeMap<Rule, usize>, Vec<Violation>) {
        let history = self.history;
        self.described.sort_by_key(|violation| {
            violation.records.last().map_or(u64::MAX, |&index| history[index].at)
        });
        (self.found, self.described)
    }
}
