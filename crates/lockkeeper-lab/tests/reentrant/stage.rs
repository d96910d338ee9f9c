//! A server, a keeper whose claims can be made again, and a plain look into Redis.

use async_trait::async_trait;
use lockkeeper::backend::{Backend, Capability, Claim, Grant, Inspector, Patience};
use lockkeeper::{Keeper, Result};
use lockkeeper_lab::server::{Lab, Server};
use redis::Connection;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct Stage {
    _server: Server,
    _lab: Lab,
    url: String,
    pub(crate) redis: Connection,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let lab = Lab::open().unwrap();
        let server = lab.redis().start().unwrap();
        let url = server.url();
        let redis = redis::Client::open(&url[..]).unwrap().get_connection().unwrap();
        Self { _server: server, _lab: lab, url, redis }
    }

    pub(crate) async fn keeper(&self) -> (Keeper, Arc<Spy>) {
        let inner = lockkeeper::open(&format!("{}?recipe=reentrant", self.url)).await.unwrap();
        let spy = Arc::new(Spy { inner, claims: Mutex::default() });
        (Keeper::new(spy.clone()).unwrap(), spy)
    }

    /// Another connection, to listen on.
    pub(crate) fn another(&self) -> Connection {
        let connection = redis::Client::open(&self.url[..]).unwrap().get_connection().unwrap();
        // A message that never comes is a failure, not a wait.
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        connection
    }

    pub(crate) fn command<T: redis::FromRedisValue>(&mut self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.redis).unwrap()
    }

    pub(crate) fn hash(&mut self, key: &str) -> BTreeMap<String, String> {
        self.command(&format!("HGETALL {key}"))
    }

    pub(crate) fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.command("KEYS *");
        keys.sort();
        keys
    }

    /// That the milliseconds left to `key` are `ttl`, less what a slow machine takes.
    pub(crate) fn expires_within(&mut self, key: &str, ttl: i64) {
        let left: i64 = self.command(&format!("PTTL {key}"));
        assert!((ttl - 10_000..=ttl).contains(&left), "{key}: {left} of {ttl} ms are left");
    }
}

/// Keeps the claims that were made, so that they can be made, and withdrawn, again.
pub(crate) struct Spy {
    pub(crate) inner: Arc<dyn Backend>,
    claims: Mutex<Vec<Claim>>,
}

impl Spy {
    pub(crate) fn last_claim(&self) -> Claim {
        self.claims.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) async fn make(&self, claim: &Claim) -> Option<Grant> {
        self.inner.acquire(claim, &Patience::none()).await.unwrap()
    }
}

#[async_trait]
impl Backend for Spy {
    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        self.claims.lock().unwrap().push(claim.clone());
        self.inner.acquire(claim, patience).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.inner.withdraw(claim).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        self.inner.inspector()
    }
}

impl fmt::Debug for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Display for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
