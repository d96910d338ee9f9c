//! The keys of a server, by `lru_crawler metadump`.
//!
//! On a connection of its own: while a server writes its keys, it answers nothing else there, and
//! there may be millions of them. They are looked at as they come, and only those of locks are kept.
//! The hash table is walked and not the lists of recent use (`all`): an item that moves from one list
//! to another meanwhile would be missed.
//!
//! ```text
//! key=lockkeeper%3Aorders%2F42 exp=1794810896 la=… cas=57 fetch=no cls=1 size=65 ⏎
//! …
//! END
//! ```

use super::ConnectOptions;
use super::handshake::{connect, write};
use crate::backend::memcached::error::Failure;
use crate::backend::support::percent;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{sleep, timeout};

/// How often a server is asked that lists its keys for somebody else just now.
const TRIES: u32 = 20;

/// The keys that `wanted` picks; `None` where the server does not list them.
pub(super) async fn keys(
    options: &ConnectOptions,
    server: usize,
    wanted: &(dyn Fn(&str) -> bool + Send + Sync),
) -> Result<Option<Vec<String>>, Failure> {
    for _ in 0..TRIES {
        match attempt(options, server, wanted).await? {
            Dumped::Keys(keys) => return Ok(Some(keys)),
            Dumped::Forbidden => return Ok(None),
            Dumped::Busy => sleep(Duration::from_millis(50)).await,
        }
    }
    Err(Failure::Refused("it lists its keys for others, again and again: try later".to_owned()))
}

enum Dumped {
    Keys(Vec<String>),
    Forbidden,
    Busy,
}

async fn attempt(
    options: &ConnectOptions,
    server: usize,
    wanted: &(dyn Fn(&str) -> bool + Send + Sync),
) -> Result<Dumped, Failure> {
    let mut greeted = connect(options, server).await?;
    write(&mut greeted.writer, b"lru_crawler metadump hash\r\n").await?;
    let mut lines = BufReader::new(greeted.reader).lines();
    let mut keys = Vec::new();
    loop {
        // A limit for each line, not for all of them.
        let line = timeout(options.timeout, lines.next_line()).await;
        let line = line.map_err(|_| Failure::TimedOut)?.map_err(|_| Failure::Broken)?;
        let line = line.ok_or(Failure::Broken)?;
        match line.trim_end() {
            "END" => return Ok(Dumped::Keys(keys)),
            busy if busy.starts_with("BUSY") => return Ok(Dumped::Busy),
            other if other.contains("ERROR") && !other.starts_with("key=") => {
                return Ok(Dumped::Forbidden);
            }
            other => keys.extend(key(other).filter(|key| wanted(key))),
        }
    }
}

/// The key that a line names. One that is no text is not ours.
fn key(line: &str) -> Option<String> {
    let coded = line.strip_prefix("key=")?.split(' ').next()?;
    percent::decode(coded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        let line = "key=lockkeeper%3Aa%2520b exp=-1 la=1 cas=3 fetch=no cls=1 size=65";
        assert_eq!(key(line).as_deref(), Some("lockkeeper:a%20b"));
        assert_eq!(key("key=%ff exp=1"), None);
        assert_eq!(key("ITEM x"), None);
    }
}
