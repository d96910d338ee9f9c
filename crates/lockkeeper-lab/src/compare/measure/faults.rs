//! Short runs of the lab with one kind of fault each, judged for the two promises.

use super::super::cell::Cell;
use super::super::column::Promise;
use super::super::contender::Contender;
use super::{Bench, probe};
use crate::check::{self, Demands, Report, Rule};
use crate::server::Lab;
use crate::workload::{self, Fault, RunArguments, Work};
use anyhow::Result;
use lockkeeper::Recipe;
use lockkeeper::backend::Reach;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is broken in a run.
#[derive(Debug)]
pub(crate) struct FaultRun {
    /// Its word in the key of a cell.
    pub(crate) key: &'static str,
    /// Its head in a table.
    pub(crate) title: &'static str,
    /// What happens, in a sentence.
    pub(crate) about: &'static str,
    /// Whether the server itself goes wrong, by losing its data or the time, which those who run it can
    /// prevent; nobody can prevent the rest.
    pub(crate) of_server: bool,
    fault: Fault,
}

/// Every fault that is tried.
pub(crate) static FAULTS: &[FaultRun] = &[
    FaultRun {
        key: "kill",
        title: "kill",
        about: "A client is killed while it holds the lock.",
        of_server: false,
        fault: Fault::Kill,
    },
    FaultRun {
        key: "pause",
        title: "pause",
        about: "A client that holds the lock is stopped for longer than its ttl, and goes on.",
        of_server: false,
        fault: Fault::Pause,
    },
    FaultRun {
        key: "partition",
        title: "partition",
        about: "A client is cut off from the server for longer than its ttl; nobody is told.",
        of_server: false,
        fault: Fault::Partition,
    },
    FaultRun {
        key: "restart",
        title: "restart",
        about: "The server is killed and started again with the data that it kept.",
        of_server: false,
        fault: Fault::ServerKill,
    },
    FaultRun {
        key: "restart-empty",
        title: "restart, empty",
        about: "The server is killed and started again without its data.",
        of_server: true,
        fault: Fault::ServerRestartEmpty,
    },
    FaultRun {
        key: "clock-jump",
        title: "clock",
        about: "The clock of the server goes ahead by twice the ttl, and back.",
        of_server: true,
        fault: Fault::ClockJump,
    },
];

/// How many runs there are at once: they mostly wait, but each has a server and three processes.
const AT_ONCE: usize = 3;

const CLAIMS: [Rule; 2] = [Rule::Exclusion, Rule::Resurrection];
const EFFECTS: [Rule; 6] = [
    Rule::TokenTwice,
    Rule::TokenOrder,
    Rule::EffectWithoutGrant,
    Rule::EffectOrder,
    Rule::EffectSequence,
    Rule::LostWrite,
];

/// One row's cells.
pub(super) fn measure(bench: &mut Bench<'_>, lab: &Lab) {
    let one: &Bench<'_> = bench;
    let mut verdicts = Vec::new();
    for faults in FAULTS.chunks(AT_ONCE) {
        verdicts.extend(std::thread::scope(|threads| {
            let judged = move |fault: &'static FaultRun| match one.contender.recipe() {
                Some(recipe) => (fault, verdict(one, recipe, lab, fault)),
                None => {
                    let why = "the lab's program takes no token from it";
                    (fault, [probe::claims(one, lab, fault.fault), Cell::Unknown(why.to_owned())])
                }
            };
            let run = |fault| threads.spawn(move || judged(fault));
            let running: Vec<_> = faults.iter().map(run).collect();
            let joined = running.into_iter().filter_map(|thread| thread.join().ok());
            joined.collect::<Vec<(&FaultRun, [Cell; 2])>>()
        }));
    }
    for (fault, cells) in verdicts {
        for (promise, cell) in Promise::BOTH.into_iter().zip(cells) {
            bench.put(&promise.key(fault.key), cell);
        }
    }
}

/// Claims and effects under one kind of fault.
fn verdict(bench: &Bench<'_>, recipe: &Recipe, lab: &Lab, run: &FaultRun) -> [Cell; 2] {
    let both = |cell: Cell| [cell.clone(), cell];
    let fault = match (bench.contender.reach(), run.fault) {
        // To a thread that stands for a process it is the same.
        (Reach::Process, Fault::Pause) => Fault::Stall,
        (Reach::Process, _) => return both(Cell::not_applicable("there is one process")),
        (_, Fault::Kill | Fault::Pause) => run.fault,
        // A server that keeps nothing comes back without it.
        (_, Fault::ServerKill) if matches!(bench.contender, Contender::InMemory(_)) => {
            Fault::ServerRestartEmpty
        }
        _ if bench.kind.is_none() => {
            return both(Cell::not_applicable("there is no server"));
        }
        _ => run.fault,
    };
    let [claims, effects] = match judged(bench, recipe, lab, fault) {
        Ok(report) => [cell(&report, &CLAIMS), cell(&report, &EFFECTS)],
        // A server that never asks what time of day it is has no clock that could jump.
        Err(error) if format!("{error:#}").contains("monotonic") => {
            both(Cell::NotApplicable(format!("{error:#}")))
        }
        Err(error) => both(Cell::unknown(&error)),
    };
    let fenced = recipe.capability.fencing;
    [claims, if fenced { effects } else { Cell::not_applicable("it gives no token") }]
}

fn judged(bench: &Bench<'_>, recipe: &Recipe, lab: &Lab, fault: Fault) -> Result<Report> {
    let folder = tempfile::tempdir_in(lab.folder())?;
    let named = recipe.example.contains("recipe=");
    // A store with a coarse clock has longer ttls, and so longer faults.
    let coarse = recipe.capability.shortest_ttl >= Duration::from_secs(2);
    let arguments = RunArguments {
        store: match bench.kind {
            Some(_) => None,
            None if recipe.scheme == "sqlite" => {
                Some(format!("sqlite:{}", folder.path().join("locks.db").display()))
            }
            None => Some(bench.url.clone()),
        },
        server: bench.kind,
        members: 1,
        recipe: named.then(|| recipe.name.to_owned()),
        clients: 2,
        processes: 3,
        seconds: if coarse { bench.pace.fault_seconds * 3 / 2 } else { bench.pace.fault_seconds },
        names: 1,
        work: Work::Lock,
        fault: vec![fault],
        seed: Some(7),
        out: Some(folder.path().join("history")),
    };
    let run = workload::run_in(lab, &arguments)?;
    let demands = Demands {
        healed: true,
        hand_overs: 20,
        contended_percent: 20,
        clients: 3,
        faults: BTreeMap::from([(fault.word().to_owned(), 1)]),
        ..Demands::none()
    };
    Ok(check::check(&run.records, &demands))
}

fn cell(report: &Report, rules: &[Rule]) -> Cell {
    let broken: Vec<String> = rules
        .iter()
        .filter_map(|rule| Some(format!("{rule}: {}", report.broken.get(rule)?)))
        .collect();
    if !broken.is_empty() {
        return Cell::Broken(broken.join(", "));
    }
    // Another rule that is broken hides what was too little.
    let counters = &report.counters;
    let hit: usize = counters.faults.values().map(|count| count.holds).sum();
    if hit == 0 || counters.hand_overs < 20 || !counters.healed {
        let seen = counters.hand_overs;
        return Cell::Unknown(format!(
            "too little happened: {seen} hand-overs, {hit} holds were hit"
        ));
    }
    Cell::Held(format!("{} hand-overs, {hit} holds were hit", counters.hand_overs))
}
