//! What must hold of ids.

use super::{Piece, Run, Taker};
use std::collections::BTreeMap;

/// How many excerpts are kept of each rule.
const KEPT: usize = 5;

/// How often each rule was broken, and excerpts.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) broken: BTreeMap<&'static str, usize>,
    pub(crate) excerpts: Vec<String>,
}

impl Findings {
    fn add(&mut self, rule: &'static str, excerpt: impl FnOnce() -> String) {
        let count = self.broken.entry(rule).or_default();
        *count += 1;
        if *count <= KEPT {
            self.excerpts.push(format!("{rule}: {}", excerpt()));
        }
    }
}

/// A piece, and whose it is.
type Owned<'a> = (&'a Taker, &'a Piece);

fn pieces(run: &Run) -> impl Iterator<Item = Owned<'_>> {
    run.takers
        .iter()
        .flat_map(|taker| taker.generators.iter().flatten().map(move |piece| (taker, piece)))
}

/// No id twice. Of all pieces that begin no later, it is enough to compare with the one that ends highest.
pub(super) fn twice(run: &Run, findings: &mut Findings) {
    let mut all: Vec<Owned<'_>> = pieces(run).collect();
    all.sort_unstable_by_key(|(_, piece)| (piece.first, piece.last, piece.returned));
    let mut furthest: Option<Owned<'_>> = None;
    for owned in all {
        let (_, piece) = owned;
        if let Some(other) = furthest.filter(|(_, other)| other.last >= piece.first) {
            findings.add("an id twice", || {
                let (from, to) = (piece.first, piece.last.min(other.1.last));
                format!("{}: {} and {}", range(from, to), shown(other), shown(owned))
            });
        }
        if furthest.is_none_or(|(_, other)| piece.last > other.last) {
            furthest = Some(owned);
        }
    }
}

/// Each generator's grow.
pub(super) fn order(run: &Run, findings: &mut Findings) {
    for taker in &run.takers {
        for pieces in &taker.generators {
            for pair in pieces.windows(2).filter(|pair| pair[1].first <= pair[0].last) {
                findings.add("a process went back", || {
                    let [before, after] = [0, 1].map(|at| shown((taker, &pair[at])));
                    format!("{before} and then {after}")
                });
            }
        }
    }
}

/// Where that is promised, an id that was asked for when another was given is larger. Goes from the
/// greatest number down: only the earliest call that gave a number at least as great is remembered.
pub(super) fn across(run: &Run, findings: &mut Findings) {
    if !run.strict {
        return;
    }
    let mut by_first: Vec<Owned<'_>> = pieces(run).collect();
    let mut by_last = by_first.clone();
    by_first.sort_unstable_by_key(|(_, piece)| std::cmp::Reverse(piece.first));
    by_last.sort_unstable_by_key(|(_, piece)| std::cmp::Reverse(piece.last));
    let mut higher = by_last.into_iter().peekable();
    let mut earliest: Option<Owned<'_>> = None;
    for owned in by_first {
        while let Some(other) = higher.next_if(|(_, other)| other.last >= owned.1.first) {
            if earliest.is_none_or(|(_, known)| other.1.returned < known.returned) {
                earliest = Some(other);
            }
        }
        if let Some(other) = earliest.filter(|(_, other)| other.returned < owned.1.asked) {
            findings.add("a smaller id after a larger one", || {
                format!("{} and after that {}", shown(other), shown(owned))
            });
        }
    }
}

/// The time in an id is between the call and its return, but for the tolerance.
pub(super) fn time(run: &Run, findings: &mut Findings) {
    let (Some(wall), Some(kind), Some(by)) = (run.wall, run.scheme.kind(), run.scheme.tolerance())
    else {
        return;
    };
    for owned in pieces(run) {
        let (_, piece) = owned;
        let (asked, returned) =
            (piece.asked.saturating_add(wall), piece.returned.saturating_add(wall));
        for id in [piece.first, piece.last] {
            let told = kind.inspect(&id.to_string()).ok().and_then(|told| told.time);
            let since = told.and_then(|told| told.duration_since(std::time::UNIX_EPOCH).ok());
            let off = since.map_or(u128::MAX, |since| {
                let (at, from, to) = (since.as_nanos(), u128::from(asked), u128::from(returned));
                from.saturating_sub(at).max(at.saturating_sub(to))
            });
            if off > (by + run.coarse).as_nanos() {
                findings.add("a wrong time in an id", || {
                    format!("{id} is {} ms from the time of {}", off / 1_000_000, shown(owned))
                });
                break;
            }
        }
    }
}

/// Whoever is there at the end got ids after the last fault.
pub(super) fn stalls(run: &Run, findings: &mut Findings) {
    for taker in run.takers.iter().filter(|taker| taker.alive && !taker.done) {
        let last = taker.generators.iter().flatten().map(|piece| piece.returned).max();
        if last.is_none_or(|last| last < run.healed) {
            findings.add("a process got no ids after the faults", || {
                let said = taker.refusals.last().map_or("nothing", |refusal| &refusal.message);
                format!("process {}, which was told last: {said}", taker.process)
            });
        }
    }
}

/// Only what the faults explain is refused.
pub(super) fn errors(run: &Run, findings: &mut Findings) {
    for taker in &run.takers {
        for refusal in &taker.refusals {
            let explained = match &*refusal.kind {
                "Unavailable" | "TimedOut" => !run.faults.is_empty(),
                // All worker numbers are held for a while, or the digits of a second are used up.
                "Exhausted" => refusal.retryable,
                _ => {
                    run.faults.contains_key("server-restart-empty")
                        && tells_of_loss(&refusal.message)
                }
            };
            if !explained {
                findings.add("an error that no fault explains", || {
                    format!("process {}: {}: {}", taker.process, refusal.kind, refusal.message)
                });
            }
        }
    }
}

fn tells_of_loss(message: &str) -> bool {
    message.contains("has lost the count") || message.contains("has no ids")
}

/// What did not happen, so that nothing can be said.
pub(super) fn lacks(run: &Run) -> Vec<String> {
    let mut lacks = Vec::new();
    let ids: u64 = pieces(run).map(|(_, piece)| piece.last - piece.first + 1).sum();
    if ids < run.least {
        lacks.push(format!("only {ids} ids, wanted {}", run.least));
    }
    let not_done = run.faults.iter().filter(|(_, count)| **count == 0);
    lacks.extend(not_done.map(|(word, _)| format!("no {word} within the run")));
    if !overlap(run) {
        lacks.push("no two processes took ids at the same time".to_owned());
    }
    let told = |test: &dyn Fn(&super::Refusal) -> bool| {
        run.takers.iter().flat_map(|taker| &taker.refusals).any(test)
    };
    let emptied = run.faults.contains_key("server-restart-empty") && run.scheme.refuses_a_loss();
    if emptied && !told(&|refusal| tells_of_loss(&refusal.message)) {
        lacks.push("nobody was told that the count was lost".to_owned());
    }
    // Others wait for the answer, or have ranges in stock.
    let cut_off = ["partition", "server-pause"].iter().any(|word| run.faults.contains_key(word));
    if cut_off && run.scheme.is_leased() && !told(&|refusal| refusal.kind == "Unavailable") {
        lacks.push("nobody was refused while the store was out of reach".to_owned());
    }
    lacks
}

/// Whether two processes took ids at the same time: of all that began before, the one that ends last
/// goes on when another begins.
fn overlap(run: &Run) -> bool {
    let mut spans: Vec<(u64, u64)> = run
        .takers
        .iter()
        .filter_map(|taker| {
            let all = || taker.generators.iter().flatten();
            let begin = all().map(|piece| piece.asked).min()?;
            Some((begin, all().map(|piece| piece.returned).max()?))
        })
        .collect();
    spans.sort_unstable();
    let mut end = None;
    spans.iter().any(|span| {
        let meets = end.is_some_and(|end| span.0 < end);
        end = end.max(Some(span.1));
        meets
    })
}

fn shown((taker, piece): Owned<'_>) -> String {
    let Piece { first, last, asked, returned } = piece;
    format!("{} to process {} ({asked}..{returned} ns)", range(*first, *last), taker.process)
}

fn range(first: u64, last: u64) -> String {
    if first == last { format!("id {first}") } else { format!("ids {first} to {last}") }
}
