//! `recipe=getset`, **unsafe**: the value says when the lock is over, by the clients' clocks.
//!
//! Made to mend [`setnx_expire`](super::setnx_expire): the time is in the value from the start,
//! so that a crash locks nobody out for ever. Step by step:
//!
//! 1. `SETNX name expiry`, the expiry being now and the ttl. If that set it, the lock is ours.
//! 2. `GET name`. If that time is not past, the lock is another's.
//! 3. `GETSET name expiry` with a new one.
//! 4. If what it returns is what was read in step 2, the lock is ours; else another was faster.
//! 5. To release: `DEL name`, unless the ttl is over already.
//!
//! Its flaws:
//!
//! - Clients compare each other's times. One whose clock is ahead takes a lock that is held; one
//!   whose clock is behind has its own taken.
//! - A client that loses in step 4 has overwritten the winner's time with its own.
//! - The value tells no owner. A client that comes to step 5 after its check was delayed deletes the
//!   lock of the next, and a client whose answer was lost cannot take back what it may have left.
//! - There is no renewal: work that takes longer than the ttl loses the lock.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! // Warns: the recipe getset is UNSAFE.
//! let keeper = lockkeeper::connect("redis://127.0.0.1?recipe=getset").await?;
//! # Ok(()) }
//! ```

use super::error::unexpected;
use super::single_key::SingleKeys;
use crate::backend::{
    Alarm, Backend, Capability, Claim, Finding, Grant, Lease, LossReason, Moment, Name, Patience,
    Release, Standing,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use redis::Value;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// **Unsafe**.
#[derive(Debug)]
pub(super) struct GetSet {
    keys: Arc<SingleKeys>,
}

impl GetSet {
    /// Warns, wherever it is opened.
    pub(super) fn open(keys: Arc<SingleKeys>) -> Self {
        keys.warn("getset", "it trusts the clocks of its clients, and cannot tell them apart");
        Self { keys }
    }

    /// What a command that returns the value returned.
    async fn value(&self, verb: &str, words: &[&str]) -> Result<Option<u128>> {
        match self.keys.command(verb, words).await? {
            Value::Nil => Ok(None),
            Value::BulkString(text) => {
                let time = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                time.map(Some).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Store,
                        format!("the key {:?} holds no time, so it is no lock", words[0]),
                    )
                })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The grant of a claim whose time was written by a command sent at `start`.
    fn grant(&self, key: String, claim: &Claim, start: Moment) -> Grant {
        let lease = GetSetLease { keys: self.keys.clone(), key, start, ttl: claim.ttl };
        Grant { lease: Box::new(lease), token: None, sent: start, valid_for: claim.ttl }
    }
}

#[async_trait]
impl Backend for GetSet {
    fn capability(&self) -> Capability {
        crate::recipes::REDIS_HISTORIC
    }

    fn recipe(&self) -> &'static str {
        "getset"
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let key = self.keys.of(&claim.name);
        let (start, expiry) = (Moment::now(), (now() + claim.ttl.as_millis()).to_string());
        if self.keys.did("SETNX", &[&key, &expiry]).await? {
            return Ok(Some(self.grant(key, claim, start)));
        }
        let Some(old) = self.value("GET", &[&key]).await? else { return Ok(None) };
        if old >= now() {
            return Ok(None);
        }
        let (start, expiry) = (Moment::now(), (now() + claim.ttl.as_millis()).to_string());
        let current = self.value("GETSET", &[&key, &expiry]).await?;
        Ok((current == Some(old)).then(|| self.grant(key, claim, start)))
    }

    /// Does nothing: the key may be another's, and nobody can tell.
    async fn withdraw(&self, _: &Claim) -> Result<()> {
        Ok(())
    }

    /// Ends the connection, with its task.
    async fn close(&self) -> Result<()> {
        self.keys.client.close();
        Ok(())
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        vec![self.keys.of(name)]
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        super::incarnation(&self.keys.client).await
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        super::checkup::checkup(&self.keys.client).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        super::checkup::round_trips(&self.keys.client, count).await
    }
}

impl fmt::Display for GetSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (unsafe getset)", self.keys.url)
    }
}

/// This client's clock, in milliseconds. That it is compared with those of other clients is the flaw.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// A key that was ours at `start`. Whether it still is, only the clock suggests.
#[derive(Debug)]
struct GetSetLease {
    keys: Arc<SingleKeys>,
    key: String,
    start: Moment,
    ttl: Duration,
}

#[async_trait]
impl Lease for GetSetLease {
    async fn renew(&mut self) -> Result<Standing> {
        Err(Error::new(ErrorKind::Unsupported, "getset has no renewal"))
    }

    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        if Moment::now().since(self.start) >= self.ttl {
            return Ok(());
        }
        match self.keys.did("DEL", &[&self.key]).await? {
            true => Ok(()),
            false => Err(LossReason::Gone.to_error()),
        }
    }

    fn watch(&mut self, _: Alarm) {}
}
