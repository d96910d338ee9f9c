//! `recipe=setnx-expire`, **unsafe**: `SETNX`, then `EXPIRE`, at last `DEL`.
//!
//! The oldest recipe, step by step, with its flaws:
//!
//! - A program that dies between the first command and the second leaves a key that never expires:
//!   no one gets the lock again until somebody deletes it by hand.
//! - `DEL` does not ask whose the lock is. A program that was delayed past the ttl deletes the lock of
//!   the next, and a third gets in.
//! - The value is `1` for everybody. A program whose answer was lost does not know whether it has the
//!   lock, and cannot take back what it may have left.
//! - `EXPIRE` counts whole seconds; a ttl is rounded up.
//! - There is no renewal: work that takes longer than the ttl loses the lock.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! // Warns: the recipe setnx-expire is UNSAFE.
//! let keeper = lockkeeper::connect("redis://127.0.0.1?recipe=setnx-expire").await?;
//! # Ok(()) }
//! ```

use super::single_key::SingleKeys;
use crate::backend::{
    Alarm, Backend, Capability, Claim, Finding, Grant, Lease, LossReason, Moment, Name, Patience,
    Release, Standing,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// **Unsafe**.
#[derive(Debug)]
pub(super) struct SetnxExpire {
    keys: Arc<SingleKeys>,
}

impl SetnxExpire {
    /// Warns, wherever it is opened.
    pub(super) fn open(keys: Arc<SingleKeys>) -> Self {
        keys.warn("setnx-expire", "a crash may lock for ever, and a late DEL frees another's lock");
        Self { keys }
    }
}

#[async_trait]
impl Backend for SetnxExpire {
    fn capability(&self) -> Capability {
        crate::recipes::REDIS_HISTORIC
    }

    fn recipe(&self) -> &'static str {
        "setnx-expire"
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let key = self.keys.of(&claim.name);
        if !self.keys.did("SETNX", &[&key, "1"]).await? {
            return Ok(None);
        }
        let sent = Moment::now();
        let seconds = claim.ttl.as_millis().div_ceil(1000).to_string();
        self.keys.did("EXPIRE", &[&key, &seconds]).await?;
        let lease = SetnxExpireLease { keys: self.keys.clone(), key };
        Ok(Some(Grant { lease: Box::new(lease), token: None, sent, valid_for: claim.ttl }))
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

impl fmt::Display for SetnxExpire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (unsafe setnx-expire)", self.keys.url)
    }
}

/// A key that was ours when it was set. Nothing in it says whether it still is.
#[derive(Debug)]
struct SetnxExpireLease {
    keys: Arc<SingleKeys>,
    key: String,
}

#[async_trait]
impl Lease for SetnxExpireLease {
    async fn renew(&mut self) -> Result<Standing> {
        Err(Error::new(ErrorKind::Unsupported, "setnx-expire has no renewal"))
    }

    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        match self.keys.did("DEL", &[&self.key]).await? {
            true => Ok(()),
            false => Err(LossReason::Gone.to_error()),
        }
    }

    fn watch(&mut self, _: Alarm) {}
}
