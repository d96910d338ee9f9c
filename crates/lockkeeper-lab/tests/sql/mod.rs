//! What the recipe `table` promises beyond the contract, on whichever server the test program is
//! for: `crate::KIND`, `crate::query`.

pub(crate) mod doors;
pub(crate) mod faults;
pub(crate) mod fences;
pub(crate) mod handing;
pub(crate) mod intruders;
pub(crate) mod keepalive;
pub(crate) mod replies;
pub(crate) mod standby;
pub(crate) mod tables;
pub(crate) mod versions;

use crate::{KIND, query};
use anyhow::Result;
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Kind, Lab, Server};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

/// Long enough for anything but a stuck test.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);
/// A ttl that nobody waits out.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) fn start(lab: &Lab) -> Result<Server> {
    lab.start(KIND)
}

/// A server that soon finds out that two wait for each other.
pub(crate) fn start_with(lab: &Lab) -> Result<Server> {
    match KIND {
        Kind::Postgres => lab.postgres().config("deadlock_timeout=50ms").start(),
        _ => lab.mariadb().start(),
    }
}

pub(crate) async fn keeper(server: &Server, options: &str) -> Result<Keeper> {
    Ok(lockkeeper::connect(&format!("{}?{options}", server.url())).await?)
}

/// A keeper whose connections go through a network that can be broken.
pub(crate) async fn through(proxy: &Proxy, options: &str) -> Result<Keeper> {
    let (word, address) = (KIND.word(), proxy.control().address());
    let url = format!("{word}://lockkeeper@{address}/lockkeeper?{options}");
    Ok(lockkeeper::connect(&url).await?)
}

/// A network in front of the server.
pub(crate) async fn network(server: &Server) -> Result<Proxy> {
    let upstream = server.address().parse()?;
    // It has a runtime of its own.
    Ok(tokio::task::spawn_blocking(move || Proxy::start(upstream, 7)).await??)
}

/// One number from the server.
pub(crate) fn number(server: &Server, sql: &str) -> Result<i64> {
    Ok(query(server, sql)?.first().map_or(Ok(0), |number| number.parse())?)
}

/// Waits for a lock in the background.
pub(crate) fn waiting(
    keeper: &Keeper,
    name: &str,
) -> tokio::task::JoinHandle<lockkeeper::Result<Guard>> {
    let lock = keeper.lock(name).ttl(LONG);
    tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await })
}

/// Waits until so many wait for the name.
pub(crate) async fn queue_of(keeper: &Keeper, name: &str, count: usize) {
    eventually("they wait", async || {
        Ok((keeper.show(name).await?.waiters.len() == count).then_some(()))
    })
    .await;
}
