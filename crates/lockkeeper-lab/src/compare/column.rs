//! The columns of the comparison, once for measuring, storing and rendering.

use super::measure::faults::FAULTS;

/// How figures of a column are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, of which only ratios mean anything on another machine.
    Time,
    /// Seconds, as a share of the ttl.
    OfTtl,
    /// Requests per second.
    Rate,
    /// Bytes.
    Bytes,
    /// How many times as long as the mean.
    OfMean,
    /// A number.
    Count,
}

/// What a column tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Acquire, release, hand-over.
    Performance,
    /// What those who wait cost, and how long they wait beside others.
    Waiting,
    /// What a crash costs. The verdicts of fault runs belong to it too, and have columns of their own.
    Reliability,
    /// What one has to read to understand it.
    Simplicity,
}

/// A column of figures. The smaller figure is the better one in all of them.
#[derive(Debug)]
pub struct Column {
    /// Its name in a stored run.
    pub key: &'static str,
    /// Its head in a table.
    pub title: &'static str,
    /// What was done, in a sentence.
    pub about: &'static str,
    /// How its figures are read.
    pub unit: Unit,
    /// What it tells of.
    pub group: Group,
}

const fn column(
    key: &'static str,
    title: &'static str,
    unit: Unit,
    group: Group,
    about: &'static str,
) -> Column {
    Column { key, title, about, unit, group }
}

/// The key of what a row can do.
pub const CAPABILITIES: &str = "capabilities";

/// Every column of figures.
pub static COLUMNS: &[Column] = &[
    column(
        "alone-p50",
        "1 task, p50",
        Unit::Time,
        Group::Performance,
        "One task acquires and releases a lock that nobody else wants; the middle one of all turns.",
    ),
    column(
        "alone-p99",
        "1 task, p99",
        Unit::Time,
        Group::Performance,
        "The same; 99 of 100 turns are shorter.",
    ),
    column(
        "names-p50",
        "64 names, p50",
        Unit::Time,
        Group::Performance,
        "64 tasks of one process acquire and release a lock each, all at once; the middle one of all turns.",
    ),
    column(
        "names-p99",
        "64 names, p99",
        Unit::Time,
        Group::Performance,
        "The same; 99 of 100 turns are shorter.",
    ),
    column(
        "handover-16",
        "hand-over, 16 waiters",
        Unit::Time,
        Group::Performance,
        "16 tasks in four processes want one lock; from the call that gives it back until the next one has it, the middle one.",
    ),
    column(
        "handover-500",
        "hand-over, 500 waiters",
        Unit::Time,
        Group::Performance,
        "The same with 500 tasks in four processes.",
    ),
    column(
        "requests-1",
        "requests/s, 1 waiter",
        Unit::Rate,
        Group::Waiting,
        "Requests that one waiter sends to the server in a second while somebody else holds the lock.",
    ),
    column(
        "requests-100",
        "requests/s, 100 waiters",
        Unit::Rate,
        Group::Waiting,
        "The same for 100 waiters of one process.",
    ),
    column(
        "fair-turns",
        "longest wait in turns, of the mean",
        Unit::OfMean,
        Group::Waiting,
        "Among the 16: how many others were served while one waited, the most as a multiple of the mean. 1 is perfectly fair.",
    ),
    column(
        "fair-wait",
        "longest wait, of the mean",
        Unit::OfMean,
        Group::Waiting,
        "Among the 16: the longest wait as a multiple of the mean.",
    ),
    column(
        "memory",
        "memory per lock",
        Unit::Bytes,
        Group::Waiting,
        "How much more memory the server uses for each lock that is held.",
    ),
    column(
        "free-crash",
        "free after a crash",
        Unit::OfTtl,
        Group::Reliability,
        "From kill -9 of the holder until somebody who waits has the lock; ttl and session are four seconds.",
    ),
    column(
        "free-cut",
        "free after a cut",
        Unit::OfTtl,
        Group::Reliability,
        "The same when the connection of the holder is cut and nobody is told.",
    ),
    column(
        "lines",
        "lines of code",
        Unit::Count,
        Group::Simplicity,
        "Lines of code of the recipe and of what it shares with the store's other recipes, without blank lines, comments and tests.",
    ),
    column(
        "own-lines",
        "of them its own",
        Unit::Count,
        Group::Simplicity,
        "Those in the file or folder that is named after the recipe.",
    ),
    column(
        "round-trips",
        "round trips",
        Unit::Count,
        Group::Simplicity,
        "How often a client waits for the server in one acquire and release of a free lock.",
    ),
];

/// The column with this key.
#[must_use]
pub fn of(key: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|column| column.key == key)
}

/// What a fault run is judged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// No two hold at once.
    Claims,
    /// No write of a stale holder is accepted by a resource that checks tokens.
    Effects,
}

impl Promise {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::Claims, Self::Effects];

    /// The key of its verdict under this fault.
    #[must_use]
    pub fn key(self, fault: &str) -> String {
        match self {
            Self::Claims => format!("claims-{fault}"),
            Self::Effects => format!("effects-{fault}"),
        }
    }
}

/// The keys of every cell that a whole row has.
#[must_use]
pub fn keys() -> Vec<String> {
    let figures = COLUMNS.iter().map(|column| column.key.to_owned());
    let verdicts =
        FAULTS.iter().flat_map(|fault| Promise::BOTH.map(|promise| promise.key(fault.key)));
    figures.chain(verdicts).chain([CAPABILITIES.to_owned()]).collect()
}
