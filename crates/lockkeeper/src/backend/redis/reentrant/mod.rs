//! `recipe=reentrant`: locks shared with the locks of Redisson.
//!
//! A claim looks to Redisson like a hold of its `RReadWriteLock`: an exclusive one like a writer, a
//! shared one like a reader. That keeps out its `RLock` too, which waits for any hash that is not
//! its own, and a hash of an `RLock` keeps out our claims. So one name is one lock for
//! [`Keeper::lock`](crate::Keeper::lock), [`Keeper::rw_lock`](crate::Keeper::rw_lock), `getLock`
//! and `getReadWriteLock`, and those who wait are woken on the channels of both. (Not for the last
//! two among themselves: in Redisson they are two locks, even of one name.) The layout of an
//! `RLock` for exclusive claims was rejected because a `getReadWriteLock` does not see it.
//!
//! Redisson keeps a count per owner. Which claims are counted, their tokens and notes are in a hash
//! beside the lock, `lockkeeper:reentrant:{name}`; the scripts say what must stay true of the two.
//!
//! Names are Redisson's keys as they are; `?prefix=` puts something before them, as a name mapper
//! does. In a cluster, whose Redisson clients publish to its shards, so do we. What waits is not known to the store, so nobody is shown waiting, and no order is kept.

mod keys;
mod owner;
mod scripts;
mod view;
mod wait;

use super::link::Link;
use super::listener::Listener;
use super::rights::{self, Wanted};
use super::roll::Roll;
use crate::backend::{
    Alarm, Backend, Capability, Claim, FencingToken, Grant, Inspector, Lease, LockView, Mode,
    Moment, Name, Patience, Release, Standing,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use keys::{Keys, Layout};
use scripts::{Asked, Scripts};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wait::Turns;

/// What its URL takes.
pub(super) const OPTIONS: &[&str] = &[
    "recipe",
    "prefix",
    "timeout",
    "allow_eviction",
    "replicas",
    "tls",
    "ca",
    "cert",
    "key",
    "sentinel_user",
    "sentinel_password",
];

/// Locks shared with Redisson; opened by [`connect`](crate::connect()).
#[derive(Debug)]
pub struct Reentrant {
    shared: Arc<Shared>,
}

/// What a backend and its leases share.
#[derive(Debug)]
struct Shared {
    link: Link,
    listener: Listener,
    roll: Arc<Roll>,
    scripts: Scripts,
    layout: Layout,
    turns: Turns,
    /// Where this keeper is told that a claim of its own was broken.
    channel: String,
    /// The command that tells Redisson of a release: `PUBLISH`, or `SPUBLISH` in a cluster.
    publish: &'static str,
    url: String,
}

/// How it is to be.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) prefix: String,
    pub(super) keeper: String,
    pub(super) clustered: bool,
    pub(super) url: String,
}

impl Reentrant {
    pub(super) async fn open(link: Link, settings: Settings) -> Result<Self> {
        let Settings { prefix, keeper, clustered, url } = settings;
        if clustered {
            has_shards(&link).await?;
        }
        let publish = if clustered { "SPUBLISH" } else { "PUBLISH" };
        let wanted = wanted(&link, &prefix, clustered);
        rights::judge(&wanted.look_up(&link).await?, link.route.shown())?;
        let roll = Arc::new(Roll::default());
        let channel = format!("{}keeper:{keeper}", super::key::PREFIX);
        let listener = Listener::new(link.route.clone(), channel.clone(), roll.clone());
        let listener = listener.at_shards(clustered);
        listener.ensure().await?;
        let (scripts, turns) = (Scripts::new(), Turns::default());
        let layout = Layout { prefix, clustered };
        let shared = Shared { link, listener, roll, scripts, layout, turns, channel, publish, url };
        Ok(Self { shared: Arc::new(shared) })
    }

    async fn ask(&self, claim: &Claim, keys: &Keys) -> Result<Answer> {
        let sent = Moment::now();
        match self.shared.acquire(claim, keys).await? {
            Asked::Granted(token) => {
                let lease = ReentrantLease {
                    shared: self.shared.clone(),
                    keys: keys.clone(),
                    id: claim.id.to_string(),
                    ttl: claim.ttl,
                };
                let token = FencingToken::new(token);
                let valid_for = claim.ttl;
                Ok(Answer::Granted(Grant { lease: Box::new(lease), token, sent, valid_for }))
            }
            Asked::Busy(left) => Ok(Answer::Busy(left)),
            Asked::Uncovered => Err(Mode::Shared.upgrade_refused(&claim.name, claim.mode)),
        }
    }
}

/// What the user has to be let do.
fn wanted(link: &Link, prefix: &str, clustered: bool) -> Wanted {
    let (publish, subscribe) =
        if clustered { ("spublish", "ssubscribe") } else { ("publish", "subscribe") };
    let channel = format!("redisson_lock__channel:{{{prefix}lock}}");
    let own = format!("{}keeper:0", super::key::PREFIX);
    let commands =
        ["type", "hget", "hset", "hdel", "hgetall", "pttl", "pexpire", "set", "del", "exists"];
    Wanted::default()
        .on_key(&format!("{prefix}lock"), &commands)
        .needs(&["evalsha", "0", "0"])
        .needs(&["time"])
        .needs(&["subscribe", &own])
        .needs_if(link.asks_replicas(), &["wait", "0", "0"])
        .needs_if(link.route.has_sentinels(), &["role"])
        .likes(&[subscribe, &channel], "whoever waits hears nothing, and finds a free lock late")
        .likes(&[publish, &channel, "0"], "nobody is told of a release, and finds a free lock late")
        .likes(&["scan", "0"], "locks cannot be listed")
}

/// Asks what Redisson does before it publishes to the shards of a cluster.
async fn has_shards(link: &Link) -> Result<()> {
    let mut ask = redis::cmd("PUBSUB");
    ask.arg("SHARDNUMSUB");
    match link.command(None, &ask).await {
        Err(error) if error.kind() == ErrorKind::Store => Err(Error::new(
            ErrorKind::Unsupported,
            "recipe=reentrant takes Redis 7 or later in a cluster: use the recipe queue",
        )
        .caused_by(error)),
        answer => answer.map(|_| ()),
    }
}

/// What a claim is told that asks.
enum Answer {
    Granted(Grant),
    /// For so long, where that is known, unless it is given back or renewed.
    Busy(Option<Duration>),
}

#[async_trait]
impl Backend for Reentrant {
    fn capability(&self) -> Capability {
        crate::recipes::REDIS_REENTRANT
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let keys = self.shared.layout.keys(&claim.name)?;
        match self.ask(claim, &keys).await? {
            Answer::Granted(grant) => Ok(Some(grant)),
            Answer::Busy(_) if patience.is_over() => Ok(None),
            Answer::Busy(_) => self.wait(claim, &keys, patience).await,
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let keys = self.shared.layout.keys(&claim.name)?;
        self.shared.release(&keys, &claim.id.to_string(), Duration::ZERO, true).await
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }
}

impl fmt::Display for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.url)
    }
}

#[derive(Debug)]
struct ReentrantLease {
    shared: Arc<Shared>,
    keys: Keys,
    id: String,
    ttl: Duration,
}

#[async_trait]
impl Lease for ReentrantLease {
    async fn renew(&mut self) -> Result<Standing> {
        let standing = self.shared.renew(&self.keys, &self.id, self.ttl).await?;
        // So that we hear of a broken lock at once, not at the next renewal.
        self.shared.listener.try_for(self.ttl / 10).await;
        Ok(standing)
    }

    async fn release(&mut self, how: &Release<'_>) -> Result<()> {
        let stay = how.stay();
        self.shared.roll.unwatch(&self.id);
        self.shared.release(&self.keys, &self.id, stay, false).await
    }

    fn watch(&mut self, alarm: Alarm) {
        self.shared.roll.watch(&self.id, alarm);
    }
}

impl Drop for ReentrantLease {
    fn drop(&mut self) {
        // A detached claim has no one left to alarm.
        self.shared.roll.unwatch(&self.id);
    }
}

#[async_trait]
impl Inspector for Reentrant {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        view::list(&self.shared, prefix).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        view::show(&self.shared, name).await
    }

    /// Holds of Redisson have no token, and so cannot be broken from here.
    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        self.shared.break_hold(&self.shared.layout.keys(name)?, token, reason).await
    }
}
