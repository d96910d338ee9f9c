//! What `memcached://` does on servers that forget, stand still, fill up, or are something else.

mod answers;
mod crowd;
mod door;
mod forgetting;
mod layout;
mod servers;
mod still;

pub(crate) use lockkeeper_lab::cases;

use anyhow::{Context, Result};
use lockkeeper::Keeper;
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::wire::line;
use lockkeeper_lab::server::{Kind, Lab, Server};
use lockkeeper_lab::trials::{arguments, trials};
use std::sync::Arc;
use std::time::Duration;

/// A ttl that no case waits out.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// A ttl to wait out: the shortest there is.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
/// For what must come.
pub(crate) const PATIENT: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let cases = [
        answers::CASES,
        crowd::CASES,
        door::CASES,
        forgetting::CASES,
        layout::CASES,
        servers::CASES,
        still::CASES,
    ];
    let conclusion = libtest_mimic::run(&arguments(4), trials(&lab, Kind::Memcached, &cases));
    drop(lab);
    conclusion.exit();
}

pub(crate) async fn keeper(server: &Server) -> Result<Keeper> {
    Ok(lockkeeper::connect(&server.url()).await?)
}

/// A keeper behind a proxy, and the proxy. A request is given up after `timeout`.
pub(crate) async fn behind(server: &Server, timeout: &str) -> Result<(Keeper, Proxy)> {
    let upstream = server.address().parse()?;
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(upstream, 7)).await??;
    let url = format!("memcached://{}?timeout={timeout}", proxy.address());
    Ok((lockkeeper::connect(&url).await?, proxy))
}

/// What the server says to somebody else.
pub(crate) fn by_hand(server: &Server, text: &str) -> Result<String> {
    line::ask(server.port(), &format!("{text}\r\nquit\r\n"))
}

/// Whether the server has a key.
pub(crate) fn has(server: &Server, key: &str) -> Result<bool> {
    Ok(by_hand(server, &format!("mg {key}"))?.starts_with("HD"))
}

/// A number of the server's statistics.
pub(crate) fn stat(server: &Server, name: &str) -> Result<u64> {
    let said = by_hand(server, "stats")?;
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    let found = lines.find(|(known, _)| *known == name).context("no such number")?;
    Ok(found.1.trim().parse()?)
}
