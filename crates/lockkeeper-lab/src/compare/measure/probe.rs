//! Other libraries under the same faults. Nobody records what they do from moment to moment, so each
//! fault happens once, at a known step: while one holds the lock and another waits for it. As soon as the
//! other one has it, the first is asked, by the library's own word, whether it still holds it.

use super::super::cell::Cell;
use super::Bench;
use crate::interop::Peer;
use crate::server::{Fitness, Lab, Server};
use crate::workload::{Fault, Network, url};
use anyhow::{Context, Result, bail};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_millis(2000);
const BEFORE: Duration = Duration::from_millis(300);
/// When the other one must have the lock at the latest.
const LATEST: Duration = Duration::from_secs(20);
/// How long the first one may take to say whether it holds the lock.
const ANSWER: Duration = Duration::from_secs(4);

/// Whether claims exclude each other under this fault.
pub(super) fn claims(bench: &Bench<'_>, lab: &Lab, fault: Fault) -> Cell {
    match probed(bench, lab, fault) {
        Ok(cell) => cell,
        // A server that never asks what time of day it is has no clock that could jump.
        Err(error) if format!("{error:#}").contains("monotonic") => {
            Cell::NotApplicable(format!("{error:#}"))
        }
        Err(error) => Cell::unknown(&error),
    }
}

fn probed(bench: &Bench<'_>, lab: &Lab, fault: Fault) -> Result<Cell> {
    let kind = bench.kind.context("there is no server")?;
    let clock = fault == Fault::ClockJump;
    let server = lab.start_fit(kind, Fitness { durable: true, clock, hanging_disk: false })?;
    let url = bench.contender.url(&server.url())?;
    let network =
        if fault == Fault::Partition { Some(Network::before_url(&url, 1)?) } else { None };
    let way = match &network {
        Some(network) => url::with_hosts(&url, &network.addresses())?,
        None => url.clone(),
    };
    let (mut holder, mut other) = (bench.peer_at(&way)?, bench.peer_at(&url)?);
    let take = format!("lock probe {}", TTL.as_millis());
    holder.must(&take, "held")?;
    other.tell(&take)?;
    sleep(BEFORE);
    other.must_be_silent()?;
    strike(fault, &server, &mut holder, network.as_ref())?;
    // One whose connection broke is replaced: it is the holder that is asked.
    let latest = Instant::now() + LATEST;
    while other.hear_within(latest.saturating_duration_since(Instant::now())).is_err() {
        if Instant::now() > latest {
            bail!("nobody had the lock in {LATEST:?}");
        }
        sleep(Duration::from_millis(100));
        let Ok(next) = bench.peer_at(&url) else { continue };
        other = next;
        other.tell(&take)?;
    }
    if fault == Fault::Kill {
        return Ok(Cell::Held("another one had the lock".to_owned()));
    }
    if fault == Fault::Pause {
        holder.go_on()?;
    }
    holder.tell("holds probe")?;
    Ok(match holder.hear_within(ANSWER) {
        Ok(said) if said == "holds" => Cell::Broken(
            "another one had the lock, and the first still said that it holds it".to_owned(),
        ),
        Ok(said) if said == "asks" => Cell::Unknown(
            "the library has no word of its own whether a lock is still held: it asks the server"
                .to_owned(),
        ),
        Ok(_) => Cell::Held("the first, asked, said that it has lost it".to_owned()),
        Err(error) if format!("{error:#}").contains("no answer") => {
            Cell::Unknown("the first does not say whether it still holds the lock".to_owned())
        }
        Err(_) => Cell::Held("the first, asked, got an error".to_owned()),
    })
}

fn strike(
    fault: Fault,
    server: &Server,
    holder: &mut Peer,
    network: Option<&Network>,
) -> Result<()> {
    match fault {
        Fault::Kill => holder.kill(),
        Fault::Pause => holder.pause(),
        Fault::Partition => {
            network.context("no network")?.each(|proxy| proxy.partition());
            Ok(())
        }
        Fault::ServerKill => {
            server.kill()?;
            server.restart()
        }
        Fault::ServerRestartEmpty => server.restart_empty(),
        Fault::ClockJump => server.set_clock_ahead(2 * TTL),
        other => bail!("{} is not tried", other.word()),
    }
}
