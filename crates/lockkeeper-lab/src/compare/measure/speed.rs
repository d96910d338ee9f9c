//! Acquire and release, and hand-over: everyone's programs are told to take turns, and write them down.

use super::super::cell::Cell;
use super::Bench;
use super::turns::{self, Turn};
use crate::interop::Peer;
use anyhow::Result;
use lockkeeper::backend::Reach;
use std::thread::sleep;
use std::time::Duration;

/// How many processes contend for one lock.
const PROCESSES: usize = 4;
/// How long after its time is over a program may tell its turns.
const AFTERWARDS: Duration = Duration::from_secs(20);

/// One row's cells.
pub(super) fn measure(bench: &mut Bench<'_>) {
    free(bench);
    for (waiters, key) in [(16, "handover-16"), (500, "handover-500")] {
        let turns = contended(bench, waiters);
        let figure = turns.as_ref().map_err(again).and_then(|turns| turns::hand_over(turns));
        bench.put(key, Cell::of(figure));
        if waiters == 16 {
            let fair = turns.as_ref().map_err(again).and_then(|turns| turns::fairness(turns));
            bench.put("fair-turns", Cell::of(fair.as_ref().map(|it| it.0).map_err(again)));
            bench.put("fair-wait", Cell::of(fair.as_ref().map(|it| it.1).map_err(again)));
        }
    }
}

/// The same error for another cell.
fn again(error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}

/// Locks that nobody else wants.
fn free(bench: &mut Bench<'_>) {
    let peer = bench.peer();
    let measured = |tasks: usize, peer: &mut Result<Peer>| -> Result<Vec<Turn>> {
        let peer = peer.as_mut().map_err(|error| again(error))?;
        let length = bench.pace.window;
        // Warms everything up: connections, scripts, compilers that compile while they run.
        take_turns(peer, "warm", tasks, bench.pace.warm_up, true)?;
        take_turns(peer, "free", tasks, length, true)
    };
    let mut peer = peer;
    let alone = measured(1, &mut peer);
    let many = measured(64, &mut peer);
    for (turns, p50, p99) in [(alone, "alone-p50", "alone-p99"), (many, "names-p50", "names-p99")] {
        for (key, percent) in [(p50, 50), (p99, 99)] {
            let figure = turns.as_ref().map_err(again).and_then(|it| turns::cycle(it, percent));
            bench.put(key, Cell::of(figure));
        }
    }
}

/// One lock that all of them want: a gate holds it until they are in line.
fn contended(bench: &Bench<'_>, waiters: usize) -> Result<Vec<Turn>> {
    let processes = if bench.contender.reach() == Reach::Process { 1 } else { PROCESSES };
    let mut peers = (0..processes).map(|_| bench.peer()).collect::<Result<Vec<Peer>>>()?;
    let name = format!("crowd/{waiters}");
    let gathering = bench.pace.gathering(waiters);
    let length = gathering + bench.pace.window;
    // Nobody else can hold the gate where locks reach no further than one process.
    let mut gate = if processes > 1 { Some(bench.peer()?) } else { None };
    if let Some(gate) = &mut gate {
        gate.must(&format!("lock {name} 60000"), "held")?;
    }
    for (number, peer) in peers.iter_mut().enumerate() {
        let tasks = waiters / processes + usize::from(number < waiters % processes);
        peer.tell(&order(&name, tasks, length, false))?;
    }
    sleep(gathering);
    if let Some(gate) = &mut gate {
        gate.must(&format!("unlock {name}"), "unlocked")?;
    }
    let mut all = Vec::new();
    for peer in &mut peers {
        all.extend(turns::read(&peer.hear_within(length + AFTERWARDS)?)?);
    }
    Ok(all)
}

fn order(name: &str, tasks: usize, length: Duration, own: bool) -> String {
    let own = if own { " own" } else { "" };
    format!("turns {name} {tasks} {}{own}", length.as_millis())
}

/// Has the tasks of one program take turns.
pub(super) fn take_turns(
    peer: &mut Peer,
    name: &str,
    tasks: usize,
    length: Duration,
    own: bool,
) -> Result<Vec<Turn>> {
    peer.tell(&order(name, tasks, length, own))?;
    turns::read(&peer.hear_within(length + AFTERWARDS)?)
}
