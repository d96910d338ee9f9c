//! Two locks on Redis that differ in one thing: whose key a release deletes.

use crate::client::{Client, Reply};
use async_trait::async_trait;
use lockkeeper::backend::{
    Alarm, Backend, Capability, Claim, Grant, Inspector, Lease, LossReason, Moment, Patience,
    Reach, Release, Standing,
};
use lockkeeper::{Error, ErrorKind, Result};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const DELETE_OWN: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const EXTEND_OWN: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

/// A key that is set if it is not there, and expires.
#[derive(Debug)]
pub(crate) struct Key {
    client: Arc<Client>,
    blind: bool,
}

impl Key {
    /// Deletes and extends the key only while it is its own.
    pub(crate) fn careful(address: SocketAddr, limit: Duration) -> Arc<dyn Backend> {
        Arc::new(Self { client: Arc::new(Client::new(address, limit)), blind: false })
    }

    /// Never extends the key, and deletes it without asking whose it is.
    pub(crate) fn blind(address: SocketAddr, limit: Duration) -> Arc<dyn Backend> {
        Arc::new(Self { client: Arc::new(Client::new(address, limit)), blind: true })
    }

    fn lease(&self, claim: &Claim) -> KeyLease {
        KeyLease {
            client: self.client.clone(),
            blind: self.blind,
            key: claim.name.to_string(),
            value: claim.id.to_string(),
            ttl: claim.ttl.as_millis().to_string(),
        }
    }
}

#[async_trait]
impl Backend for Key {
    fn capability(&self) -> Capability {
        Capability::least(Reach::Network)
    }

    async fn acquire(&self, claim: &Claim, _: &Patience) -> Result<Option<Grant>> {
        let lease = self.lease(claim);
        let sent = Moment::now();
        let words = ["SET", &lease.key, &lease.value, "NX", "PX", &lease.ttl];
        match self.client.ask(&words).await? {
            Reply::Nil => Ok(None),
            _ => {
                let valid_for = claim.ttl;
                Ok(Some(Grant::new(Box::new(lease), None, sent, valid_for)))
            }
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.lease(claim).release(&Release::now()).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        None
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key at {}", self.client.address)
    }
}

#[derive(Debug)]
struct KeyLease {
    client: Arc<Client>,
    blind: bool,
    key: String,
    value: String,
    ttl: String,
}

#[async_trait]
impl Lease for KeyLease {
    async fn renew(&mut self) -> Result<Standing> {
        if self.blind {
            return Err(Error::new(ErrorKind::Unavailable, "this lock is never renewed"));
        }
        let words = ["EVAL", EXTEND_OWN, "1", &self.key, &self.value, &self.ttl];
        match self.client.ask(&words).await? {
            Reply::Number(1) => Ok(Standing::Held),
            _ => Ok(Standing::Lost(LossReason::Gone)),
        }
    }

    async fn release(&mut self, _: &Release<'_>) -> Result<()> {
        let words = if self.blind {
            vec!["DEL", &self.key]
        } else {
            vec!["EVAL", DELETE_OWN, "1", &self.key, &self.value]
        };
        self.client.ask(&words).await.map(drop)
    }

    fn watch(&mut self, _: Alarm) {}
}
