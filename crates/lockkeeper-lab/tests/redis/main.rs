//! What `redis://` promises beyond the contract: on servers that fail, forget and are full.

mod abilities;
mod cluster;
mod connections;
mod failover;
mod forged;
mod forgetting;
mod full;
mod ghosts;
mod giving_up;
mod likeness;
mod messages;
mod passing;
mod reaching;
mod rights;
mod shards;
mod versions;

use anyhow::Result;
use lockkeeper::Keeper;
use lockkeeper_lab::cases;
use lockkeeper_lab::proxy::{Framing, Proxy};
use lockkeeper_lab::server::{Kind, Lab, Server};
use lockkeeper_lab::trials::{arguments, eventually, trials};
use std::sync::Arc;
use std::time::Duration;

/// Long enough for anything but a stuck test.
const PATIENT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(30);
/// What a user needs, as the documentation says it.
const RIGHTS: &str = "~lockkeeper:* &lockkeeper:* +@read +@write +@scripting +@pubsub +@connection +config|get +role \
                      +wait +time +info +cluster|slots +asking";

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let cases = [
        reaching::CASES,
        abilities::CASES,
        connections::CASES,
        messages::CASES,
        passing::CASES,
        giving_up::CASES,
        forgetting::CASES,
        forged::CASES,
        ghosts::CASES,
        full::CASES,
        likeness::CASES,
        failover::CASES,
        shards::CASES,
        cluster::CASES,
        rights::CASES,
        versions::CASES,
    ];
    let trials = trials(&lab, Kind::Redis, &cases);
    // They mostly wait.
    let conclusion = libtest_mimic::run(&arguments(6), trials);
    drop(lab);
    conclusion.exit();
}

fn hosts(servers: &[Server]) -> String {
    servers.iter().map(Server::address).collect::<Vec<_>>().join(",")
}

/// Waits until so many stand in line for the name.
async fn waiting(keeper: &Keeper, name: &str, count: usize) {
    let wait = async || Ok((keeper.show(name).await?.waiters.len() == count).then_some(()));
    eventually("they wait", wait).await;
}

/// A keeper whose way to the server can be broken.
async fn far_keeper(server: &Server) -> Result<(Keeper, Proxy)> {
    let upstream = server.address().parse()?;
    // On a thread: it has a runtime of its own.
    let start = move || Proxy::start_framed(upstream, 7, Framing::Resp);
    let proxy = tokio::task::spawn_blocking(start).await??;
    Ok((lockkeeper::connect(&format!("redis://{}", proxy.address())).await?, proxy))
}

async fn keeper(server: &Server) -> Result<Keeper> {
    Ok(lockkeeper::connect(&server.url()).await?)
}
