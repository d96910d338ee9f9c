//! How long a connection lasts whose other side vanished without a word.
//!
//! The system of our side asks after `keepalive` of silence; with PostgreSQL so does the server's, and
//! both give the connection up after three more questions, two seconds apart. What is looked at here
//! is the timer itself: a network that swallows even the answers of the system takes more rights than
//! a test has.

use super::{LONG, keeper, queue_of, start, waiting};
use crate::KIND;
use anyhow::{Context, Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Kind, Lab};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

cases!(connections_are_asked_after_the_silence_that_the_url_says);

/// The state of a connection that is open, in the system's list.
const OPEN: &str = "01";
/// The timer that runs for a connection that is silent and must be asked.
const ASKS: &str = "02";
/// A second, in the units of that list.
const SECOND: u64 = 100;

async fn connections_are_asked_after_the_silence_that_the_url_says(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let silence = Duration::from_secs(7);
    let one = keeper(&server, "keepalive=7s").await?;
    let other = keeper(&server, "keepalive=7s").await?;
    let held = one.lock("silent").ttl(LONG).acquire().await?;
    let next = waiting(&other, "silent");
    queue_of(&one, "silent", 1).await;
    let port = format!(":{:04X}", server.port());
    // A waiter's keeper has a second connection to PostgreSQL, for messages.
    let (sides, least) = match KIND {
        Kind::Postgres => (&[("the server's", 1), ("ours", 2)][..], 3),
        _ => (&[("ours", 2)][..], 2),
    };
    for &(side, column) in sides {
        eventually(&format!("all connections on {side} side are asked for"), async || {
            let timers = timers(&port, column)?;
            ensure!(timers.len() >= least, "unknown: {} connections", timers.len());
            let asked = timers.iter().all(|left| left.is_some_and(|left| left <= silence));
            Ok(asked.then_some(()))
        })
        .await;
    }
    held.release().await?;
    next.await??.release().await?;
    Ok(())
}

/// When each open connection is asked for, if it is: of those with this port in this column.
fn timers(port: &str, column: usize) -> Result<Vec<Option<Duration>>> {
    let list = std::fs::read_to_string("/proc/net/tcp")?;
    let mut found = Vec::new();
    for line in list.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let there = |at: usize| words.get(at).copied().context("a short line");
        if !there(column)?.ends_with(port) || there(3)? != OPEN {
            continue;
        }
        let (kind, left) = there(5)?.split_once(':').context("no timer")?;
        let left = Duration::from_millis(u64::from_str_radix(left, 16)? * 1000 / SECOND);
        found.push((kind == ASKS).then_some(left));
    }
    Ok(found)
}
