//! The three orders: by performance, by reliability, by simplicity. Each follows from the figures by a
//! rule that the page says.

use super::super::cell::Cell;
use super::super::column::Promise;
use super::super::measure::faults::FAULTS;
use super::super::stored::{Row, StoredRun};
use super::{base, format, reaches_far};
use crate::compare::column;

/// A row with its place in an order.
pub(super) struct Ranked<'a> {
    pub(super) row: &'a Row,
    /// Smaller is better.
    score: Vec<f64>,
    /// The score in words.
    pub(super) why: String,
}

/// What an order is made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Performance,
    Reliability,
    Simplicity,
}

/// The figures that make up performance.
const SPEED: [&str; 4] = ["alone-p50", "names-p50", "handover-16", "handover-500"];

impl Order {
    pub(super) const ALL: [Self; 3] = [Self::Performance, Self::Reliability, Self::Simplicity];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::Reliability => "reliability",
            Self::Simplicity => "simplicity",
        }
    }

    pub(super) fn rule(self) -> &'static str {
        match self {
            Self::Performance => {
                "the geometric mean of one task, 64 names and hand-over with 16 and with 500 waiters, each \
                 as a multiple of the fastest; a star where one of the four is unknown, and no rank where more are"
            }
            Self::Reliability => {
                "recipes of ours only, since nobody records the claims of the others: the fewest runs with faults in which claims or effects were broken or cannot be protected, then \
                 the fewest that are unknown, then the time until free after a crash"
            }
            Self::Simplicity => {
                "the geometric mean of lines of code and round trips, each as a multiple of the smallest"
            }
        }
    }

    /// What is often written of kinds of stores, the best first.
    pub(super) fn said(self) -> [Family; 3] {
        match self {
            Self::Performance => [Family::Cache, Family::Coordinator, Family::Database],
            Self::Reliability => [Family::Coordinator, Family::Cache, Family::Database],
            Self::Simplicity => [Family::Database, Family::Cache, Family::Coordinator],
        }
    }
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Cache,
    Coordinator,
    Database,
}

impl Family {
    pub(super) const ALL: [Self; 3] = [Self::Cache, Self::Coordinator, Self::Database];

    pub(super) fn of(row: &Row) -> Self {
        match row.store.as_str() {
            "redis" | "redlock" | "memcached" => Self::Cache,
            "zookeeper" | "etcd" => Self::Coordinator,
            _ => Self::Database,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Coordinator => "coordinator",
            Self::Database => "database",
        }
    }
}

/// Rows in order, the best first. Those that the rule cannot place are left out, and so are stores of
/// one machine.
pub(super) fn ranked(run: &StoredRun, order: Order) -> Vec<Ranked<'_>> {
    let far = run.rows.iter().filter(|row| reaches_far(row));
    let mut ranked: Vec<Ranked<'_>> = far
        .filter_map(|row| {
            let (score, why) = match order {
                Order::Performance => performance(run, row)?,
                Order::Reliability => reliability(row)?,
                Order::Simplicity => simplicity(run, row)?,
            };
            Some(Ranked { row, score, why })
        })
        .collect();
    ranked.sort_by(|one, other| {
        let pairs = one.score.iter().zip(&other.score);
        pairs
            .map(|(one, other)| one.total_cmp(other))
            .find(|it| it.is_ne())
            .unwrap_or_else(|| one.row.key().cmp(&other.row.key()))
    });
    ranked
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    let count = ratios.iter().map(|_| 1.0).sum::<f64>();
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count).exp()
}

fn performance(run: &StoredRun, row: &Row) -> Option<(Vec<f64>, String)> {
    let ratio = |key: &&str| Some(row.figure(key)? / base(run, column::of(key)?)?);
    let ratios: Vec<f64> = SPEED.iter().filter_map(ratio).filter(|it| *it > 0.0).collect();
    if ratios.len() + 1 < SPEED.len() {
        return None;
    }
    let mean = geometric_mean(&ratios);
    let star = if ratios.len() < SPEED.len() { "*" } else { "" };
    Some((vec![mean], format!("{}{star}", format::times(mean))))
}

/// The runs with faults of a row, with their verdicts.
pub(super) fn verdicts(row: &Row) -> impl Iterator<Item = (&'static str, Promise, Cell)> {
    FAULTS.iter().flat_map(move |fault| {
        Promise::BOTH.map(|promise| (fault.key, promise, row.cell(&promise.key(fault.key))))
    })
}

/// How many were broken, how many are unknown, how many were held.
pub(super) fn tally(row: &Row) -> [u32; 3] {
    let mut counts = [0; 3];
    for (_, promise, cell) in verdicts(row) {
        match cell {
            Cell::Broken(_) => counts[0] += 1,
            // A stale write that no token stops is a promise that cannot be kept.
            Cell::NotApplicable(why) if promise == Promise::Effects && why.contains("token") => {
                counts[0] += 1;
            }
            Cell::Unknown(_) => counts[1] += 1,
            Cell::Held(_) => counts[2] += 1,
            _ => {}
        }
    }
    counts
}

fn reliability(row: &Row) -> Option<(Vec<f64>, String)> {
    let [broken, unknown, held] = tally(row);
    if held == 0 || !row.ours {
        return None;
    }
    let crash = row.figure("free-crash");
    let score = vec![f64::from(broken), f64::from(unknown), crash.unwrap_or(f64::INFINITY)];
    let mut why = format!("{held} held");
    for (count, word) in [(broken, "broken"), (unknown, "unknown")] {
        if count > 0 {
            why.push_str(&format!(", {count} {word}"));
        }
    }
    Some((score, why))
}

fn simplicity(run: &StoredRun, row: &Row) -> Option<(Vec<f64>, String)> {
    let ratio = |key: &str| {
        let far = run.rows.iter().filter(|row| reaches_far(row));
        let least = far.filter_map(|row| row.figure(key)).min_by(f64::total_cmp)?;
        Some(row.figure(key)? / least)
    };
    let mean = geometric_mean(&[ratio("lines")?, ratio("round-trips")?]);
    let lines = format::figure(column::Unit::Count, row.figure("lines")?);
    let trips = format::figure(column::Unit::Count, row.figure("round-trips")?);
    Some((vec![mean], format!("{lines} lines, {trips} round trips")))
}

/// The best row of ours of each kind of store, in order.
pub(super) fn families(run: &StoredRun, order: Order) -> Vec<(Family, String, String)> {
    let ranked = ranked(run, order);
    let mut best: Vec<(Family, String, String)> = Vec::new();
    for it in ranked.iter().filter(|it| it.row.ours) {
        let family = Family::of(it.row);
        if best.iter().all(|(known, _, _)| *known != family) {
            best.push((family, super::title(it.row), it.why.clone()));
        }
    }
    best
}
