//! `recipe=reentrant`: locks shared with the locks of Redisson.
//!
//! A claim looks to Redisson like a hold of its `RReadWriteLock`: an exclusive one like a writer, a
//! shared one like a reader. That keeps out its `RLock` too, which waits for any hash that is not
//! its own, and a hash of an `RLock` keeps out our claims. So one name is one lock for
//! [`Keeper::lock`](crate::Keeper::lock), [`Keeper::rw_lock`](crate::Keeper::rw_lock), `getLock`
//! and `getReadWriteLock`, and those that wait are woken on the channels of both. (Not for the last
//! two among themselves: in Redisson they are two locks, even of one name.) The layout of an
//! `RLock` for exclusive claims was rejected because a `getReadWriteLock` does not see it.
//!
//! Redisson keeps a count per owner. Which claims are counted, their tokens and notes are in a hash
//! beside the lock, `lockkeeper:reentrant:{name}`; `lib.lua` says what must stay true of the two.
//!
//! ```text
//!   orders/42                              lockkeeper:reentrant:{orders/42}
//!     mode            write                  t        1789540332123456
//!     8a1f…:7:write   2            ◄── counted ──┬── c5f0c…01   expiry, token, since, field, …
//!                                                └── c71be…09   the same owner, again
//! ```
//!
//! | here | in the lock | who is kept out |
//! |---|---|---|
//! | exclusive claim | `mode` write, `<owner>:write` | everyone but the same owner |
//! | shared claim | `mode` read, `<owner>`, a key per time it entered | writers, and `getLock` |
//! | shared claim of an owner that writes | `<owner>` beside `<owner>:write` | as before |
//! | Redisson's `getLock` | no `mode`, `<uuid>:<thread>` | all of ours |
//!
//! What Redisson does and we do not: its watchdog renews every ten seconds whatever the lease was, ours
//! is the engine's; and it takes one off a count, where we count anew.
//!
//! Names are Redisson's keys as they are; `?prefix=` puts something before them, as a name mapper does.
//! In a cluster, whose Redisson clients publish to its shards, so do we. Claims that wait are not known
//! to Redis, so nobody is shown waiting, and no order is kept.

mod inspect;
mod keys;
mod lease;
mod owner;
mod requests;
mod wait;

use super::client::{Client, Notice, Subscriber};
use super::keys::PREFIX;
use super::rights::{self, Wanted};
use crate::backend::support::alarms::{Alarms, OwnAlarm};
use crate::backend::{
    Backend, Capability, Claim, FencingToken, Finding, Grant, Inspector, Lease, LockView,
    LossReason, Mode, Moment, Name, Page, Patience, Ticket,
};
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use keys::{Keys, Layout};
use lease::ReentrantLease;
use requests::{Asked, Requests};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wait::SingleFlight;

/// Locks shared with Redisson.
#[derive(Debug)]
pub(super) struct Reentrant {
    shared: Arc<Shared>,
}

/// What a backend and its leases share. Leases hold it strongly, the callbacks of the client and the
/// subscriber hold only the alarms: so the connections end with the last lease.
#[derive(Debug)]
struct Shared {
    requests: Requests,
    subscriber: Subscriber,
    alarms: Arc<Alarms>,
    layout: Layout,
    single_flight: SingleFlight,
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
    /// Checks what the user may do, and subscribes to this keeper's channel.
    pub(super) async fn open(client: Client, settings: Settings) -> Result<Self> {
        let Settings { prefix, keeper, clustered, url } = settings;
        if clustered {
            has_shards(&client).await?;
        }
        let publish = if clustered { "SPUBLISH" } else { "PUBLISH" };
        let wanted = wanted(&client, &prefix, clustered);
        rights::judge(&wanted.look_up(&client).await?, client.connector.shown())?;
        let alarms = Arc::new(Alarms::default());
        let endangered = alarms.clone();
        client.lost.register(move || endangered.endanger());
        let channel = format!("{PREFIX}keeper:{keeper}");
        let told = alarms.clone();
        let on_notice = move |notice: Notice<'_>| heard(&told, notice);
        let connector = client.connector.clone();
        let subscriber = Subscriber::new(connector, channel.clone(), clustered, on_notice);
        subscriber.ensure().await?;
        let requests = Requests::new(client, channel, publish);
        let (layout, single_flight) = (Layout { prefix, clustered }, SingleFlight::default());
        let shared = Shared { requests, subscriber, alarms, layout, single_flight, url };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Asks once.
    async fn ask(&self, claim: &Claim, keys: &Keys) -> Result<Answer> {
        let sent = Moment::now();
        match self.shared.requests.acquire(claim, keys).await? {
            Asked::Granted(token) => {
                let lease = ReentrantLease {
                    shared: self.shared.clone(),
                    keys: keys.clone(),
                    id: claim.id.to_string(),
                    ttl: claim.ttl,
                    by_ticket: false,
                    alarm: OwnAlarm::default(),
                };
                let token = FencingToken::new(token);
                let valid_for = claim.ttl;
                Ok(Answer::Granted(Grant { lease: Box::new(lease), token, sent, valid_for }))
            }
            Asked::Busy(left) => Ok(Answer::Busy(left)),
            Asked::Uncovered => Err(Mode::Shared.upgrade_refused(&claim.name, claim.mode)),
            Asked::OtherMode => {
                let other = match claim.mode {
                    Mode::Shared => Mode::Exclusive,
                    _ => Mode::Shared,
                };
                claim.refuse_other_terms(other, None).map(|()| Answer::Busy(None))
            }
        }
    }
}

/// Passes on what the subscriber has to say: `broken ID REASON`, or that the connection broke.
fn heard(alarms: &Alarms, notice: Notice<'_>) {
    match notice {
        Notice::Message(text) => {
            let mut words = text.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("broken"), Some(id), reason) => {
                    let reason = reason.unwrap_or_default().to_owned();
                    alarms.ring(id, LossReason::Broken { reason });
                }
                _ => tracing::debug!(message = text, "a message that is none of ours"),
            }
        }
        Notice::Disconnected => alarms.endanger(),
        Notice::Subscribed => {}
    }
}

/// What the user has to be let do.
fn wanted(client: &Client, prefix: &str, clustered: bool) -> Wanted {
    let (publish, subscribe) =
        if clustered { ("spublish", "ssubscribe") } else { ("publish", "subscribe") };
    let channel = format!("redisson_lock__channel:{{{prefix}lock}}");
    let own = format!("{PREFIX}keeper:0");
    let commands =
        ["type", "hget", "hset", "hdel", "hgetall", "pttl", "pexpire", "set", "del", "exists"];
    Wanted::default()
        .on_key(&format!("{prefix}lock"), &commands)
        .needs(&["evalsha", "0", "0"])
        .needs(&["time"])
        .needs(&["subscribe", &own])
        .needs_if(client.asks_replicas(), &["wait", "0", "0"])
        .needs_if(client.connector.has_sentinels(), &["role"])
        .likes(&[subscribe, &channel], "a waiter hears nothing, and finds a free lock late")
        .likes(&[publish, &channel, "0"], "nobody is told of a release, and finds a free lock late")
        .likes(&["scan", "0"], "locks cannot be listed")
}

/// Asks what Redisson does before it publishes to the shards of a cluster.
async fn has_shards(client: &Client) -> Result<()> {
    let mut ask = redis::cmd("PUBSUB");
    ask.arg("SHARDNUMSUB");
    match client.command(None, &ask).await {
        Err(error) if error.kind() == ErrorKind::Store => Err(Error::new(
            ErrorKind::Unsupported,
            "recipe=reentrant takes Redis 7 or later in a cluster: use the recipe queue",
        )
        .caused_by(error)),
        answer => answer.map(|_| ()),
    }
}

/// What becomes of asking once.
enum Answer {
    Granted(Grant),
    /// Held by others, for at most this long where that is known, unless they renew it.
    Busy(Option<Duration>),
}

#[async_trait]
impl Backend for Reentrant {
    fn capability(&self) -> Capability {
        crate::recipes::REDIS_REENTRANT
    }

    fn recipe(&self) -> &'static str {
        "reentrant"
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
        self.shared.requests.release(&keys, &claim.id.to_string(), Duration::ZERO, true).await
    }

    /// Ends both connections, with their tasks.
    async fn close(&self) -> Result<()> {
        self.shared.subscriber.close().await;
        self.shared.requests.client.close();
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        let keys = self.shared.layout.keys(name);
        keys.map(|keys| keys.stored().map(str::to_owned).into()).unwrap_or_default()
    }

    /// Told of a break at its next renewal only: the message goes to the keeper that made the claim.
    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        let keys = self.shared.layout.keys(&ticket.name).ok()?;
        let (shared, id, ttl) = (self.shared.clone(), ticket.id.to_string(), ticket.ttl);
        let (by_ticket, alarm) = (true, OwnAlarm::default());
        Some(Box::new(ReentrantLease { shared, keys, id, ttl, by_ticket, alarm }))
    }

    async fn incarnation(&self) -> Result<Option<String>> {
        super::incarnation(&self.shared.requests.client).await
    }

    async fn checkup(&self) -> Result<Vec<Finding>> {
        super::checkup::checkup(&self.shared.requests.client).await
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        super::checkup::round_trips(&self.shared.requests.client, count).await
    }
}

impl fmt::Display for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.url)
    }
}

#[async_trait]
impl Inspector for Reentrant {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        inspect::list(&self.shared, prefix).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        inspect::list_page(&self.shared, prefix, after, limit).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        inspect::show(&self.shared, name).await
    }

    /// Holds of Redisson have no token, and so cannot be broken from here.
    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        self.shared.requests.break_hold(&self.shared.layout.keys(name)?, token, reason).await
    }
}
