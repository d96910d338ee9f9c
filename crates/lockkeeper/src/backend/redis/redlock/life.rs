//! Which life a node is in, asked once for each connection.
//!
//! A connection does not outlive its server. So what was asked on the connection in use is true of every
//! answer that came over it, and nothing need be asked with each vote.

use crate::backend::redis::client::Client;
use crate::backend::support::sync::lock;
use crate::backend::{Moment, NodeLife};
use crate::error::{ErrorKind, Result};
use redis::Value;
use std::sync::Mutex;
use std::time::Duration;

/// What is known of a node's life.
#[derive(Debug, Default)]
pub(super) struct Life {
    known: Mutex<Option<Known>>,
}

/// What was answered on the connection of this number, at that moment.
#[derive(Debug, Clone)]
struct Known {
    connection: u64,
    at: Moment,
    life: NodeLife,
}

impl Life {
    /// The life that the connection in use leads to. A restart since the last call is noticed.
    pub(super) async fn now(
        &self,
        client: &Client,
        kept_since: &str,
        allow_eviction: bool,
    ) -> Result<NodeLife> {
        loop {
            let before = client.connection();
            if let Some(known) = lock(&self.known).clone()
                && Some(known.connection) == before
            {
                return Ok(known.aged());
            }
            let at = Moment::now();
            let life = ask(client, kept_since, allow_eviction).await?;
            // All of it by one connection: none was made meanwhile but the first.
            let Some(after) = client.connection() else { continue };
            if before.is_none_or(|before| before == after) {
                *lock(&self.known) = Some(Known { connection: after, at, life: life.clone() });
                if before.is_some() {
                    return Ok(life);
                }
            }
        }
    }
}

impl Known {
    /// As it is by now.
    fn aged(mut self) -> NodeLife {
        let since = Moment::now().since(self.at);
        self.life.up_for = self.life.up_for.map(|up_for| up_for + since);
        self.life.kept_for = self.life.kept_for.map(|kept_for| kept_for + since);
        self.life
    }
}

async fn ask(client: &Client, kept_since: &str, allow_eviction: bool) -> Result<NodeLife> {
    let mut life = NodeLife::default();
    let mut info = redis::cmd("INFO");
    info.arg("server");
    // A user that may not ask gets a node that does not tell, not an error.
    if let Some(text) = told(client.command(None, &info).await)? {
        let text: String = redis::from_redis_value(text).unwrap_or_default();
        let line = |key| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        life.id = line("run_id:").map(str::to_owned);
        let seconds = line("uptime_in_seconds:").and_then(|seconds| seconds.parse().ok());
        life.up_for = seconds.map(Duration::from_secs);
    }
    let appends = setting(client, "appendonly").await?.as_deref() == Some("yes");
    life.remembers = appends && setting(client, "appendfsync").await?.as_deref() == Some("always");
    if life.remembers {
        life.kept_for = kept_for(client, kept_since).await?;
    }
    let policy = setting(client, "maxmemory-policy").await?;
    life.unfit = policy.filter(|policy| policy != "noeviction" && !allow_eviction).map(|policy| {
        format!(
            "it may throw locks away when its memory is full (maxmemory-policy is {policy}): set \
             it to noeviction, or say ?allow_eviction=true"
        )
    });
    Ok(life)
}

/// For how long the server has kept what it answered. The first keeper that meets it writes the time down,
/// by the server's clock: on a disk that was lost, or in a folder that is new with each start, that is
/// gone with the locks.
async fn kept_for(client: &Client, kept_since: &str) -> Result<Option<Duration>> {
    let Some(now) = told(client.command(None, &redis::cmd("TIME")).await)? else { return Ok(None) };
    let Ok((seconds, micros)) = redis::from_redis_value::<(u64, u64)>(now) else { return Ok(None) };
    let now = seconds.saturating_mul(1_000_000).saturating_add(micros);
    let mut note = redis::cmd("SET");
    note.arg(kept_since).arg(now).arg("NX");
    told(client.command(Some(kept_since), &note).await)?;
    let mut get = redis::cmd("GET");
    get.arg(kept_since);
    let since = told(client.command(Some(kept_since), &get).await)?;
    let since: Option<u64> = since.and_then(|since| redis::from_redis_value(since).ok());
    Ok(since.map(|since| Duration::from_micros(now.saturating_sub(since))))
}

/// A setting of the server, where the user may see it.
async fn setting(client: &Client, name: &str) -> Result<Option<String>> {
    let mut get = redis::cmd("CONFIG");
    get.arg("GET").arg(name);
    let value = match told(client.command(None, &get).await)? {
        Some(Value::Map(pairs)) => pairs.into_iter().next().map(|(_, value)| value),
        Some(Value::Array(parts)) => parts.into_iter().nth(1),
        _ => None,
    };
    Ok(value.and_then(|value| redis::from_redis_value(value).ok()))
}

/// The answer, or none where the server does not let us ask.
fn told(answer: Result<Value>) -> Result<Option<Value>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        // A password that is wrong fails before, when the connection is made.
        Err(error) if error.kind() == ErrorKind::Store => Ok(None),
        Err(error) if error.kind() == ErrorKind::Denied && is_forbidden(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the user may not do this one thing, as opposed to nothing at all.
fn is_forbidden(error: &crate::Error) -> bool {
    error.to_string().contains("does not let this user")
}
