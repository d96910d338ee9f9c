//! `recipe=queue`: an ordered queue of claims, those at its head hold the name.
//!
//! Where the next in line is a claim of the same keeper, it begins at once when the one before is
//! done, and Redis is told of it afterwards: what others are shown may be a round trip old.

mod known;
mod lease;
mod record;
mod scripts;
mod view;
mod wait;

use super::key::Keys;
use super::link::Link;
use super::listener::Listener;
use super::owned::Owned;
use super::rights::{self, Wanted};
use super::roll::{Remove, Roll};
use super::sequence;
use super::tenure::{Bid, Tenure, Vouched};
use super::trouble::strange;
use crate::backend::{
    Backend, Capability, Claim, FencingToken, Grant, HolderView, Inspector, LockView, LossReason,
    Moment, Name, Patience, Sequencer, Standing,
};
use crate::error::Result;
use async_trait::async_trait;
use known::Known;
use lease::QueueLease;
use redis::Value;
use scripts::{Asked, Scripts, ids, text, token_of, with_blanks};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// The queue in Redis; opened by [`connect`](crate::connect()).
#[derive(Debug)]
pub struct Queue {
    shared: Arc<Shared>,
}

/// What a backend and its leases share.
#[derive(Debug)]
pub(super) struct Shared {
    link: Link,
    listener: Arc<Listener>,
    roll: Arc<Roll>,
    scripts: Scripts,
    prefix: String,
    /// This keeper's own name in the store: its waiters live and die with it.
    keeper: String,
    barging: bool,
    known: Known,
    /// How many requests had to be told from their repetition.
    requests: AtomicU64,
    url: String,
}

/// How a queue is to be.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) prefix: String,
    pub(super) keeper: String,
    pub(super) barging: bool,
    pub(super) url: String,
}

impl Queue {
    pub(super) async fn open(link: Link, settings: Settings) -> Result<Self> {
        let Settings { prefix, keeper, barging, url } = settings;
        rights::judge(&wanted(&link, &prefix).look_up(&link).await?, link.route.shown())?;
        let roll = Arc::new(Roll::default());
        let link = link.telling(roll.clone());
        let channel = format!("{prefix}keeper:{keeper}");
        let listener = Arc::new(Listener::new(link.route.clone(), channel, roll.clone()));
        listener.ensure().await?;
        let scripts = Scripts::new(&prefix);
        let (known, requests) = Default::default();
        let shared =
            Shared { link, listener, roll, scripts, prefix, keeper, barging, known, requests, url };
        let shared = Arc::new(shared);
        let owner = Arc::downgrade(&shared);
        shared.roll.remove_by(Remove(Box::new(move |key, id| remove(&owner, key, id))));
        Ok(Self { shared })
    }

    fn grant(&self, place: Place, bid: Arc<Bid>, got: Got) -> Grant {
        let Got { token, vouched, tenure } = got;
        self.shared.known.granted(&place.keys.lock, token);
        let (shared, heir, next, given_back) = (self.shared.clone(), None, Vec::new(), false);
        let lease =
            QueueLease { shared, place, bid, token, vouched, tenure, heir, next, given_back };
        let Vouched { sent, valid_for } = vouched;
        Grant { lease: Box::new(lease), token: FencingToken::new(token), sent, valid_for }
    }
}

/// What the user has to be let do.
fn wanted(link: &Link, prefix: &str) -> Wanted {
    let (lock, channel) = (format!("{prefix}{{lock}}"), format!("{prefix}keeper:0"));
    let commands = [
        "get", "set", "del", "exists", "setrange", "pttl", "pexpire", "hget", "hset", "hdel",
        "hgetall", "hlen", "rpush", "lpush", "lpop", "lrange", "lindex", "llen", "lrem",
    ];
    Wanted::default()
        .on_key(&lock, &commands)
        .needs(&["evalsha", "0", "0"])
        .needs(&["time"])
        .needs(&["subscribe", &channel])
        .needs_if(link.asks_replicas(), &["wait", "0", "0"])
        .needs_if(link.route.has_sentinels(), &["role"])
        .likes(
            &["publish", &channel, "0"],
            "whoever waits is told nothing, and finds out up to 600 ms late that it is its turn",
        )
        .likes(&["scan", "0"], "locks cannot be listed")
        .likes(&["incrby", &format!("{prefix}sequence:0"), "1"], "numbers cannot be reserved")
}

#[async_trait]
impl Backend for Queue {
    fn capability(&self) -> Capability {
        Capability { fair: !self.shared.barging, ..crate::recipes::REDIS_QUEUE }
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        if !patience.is_over() {
            return self.wait(claim, patience).await;
        }
        let place = self.shared.own_place(claim);
        let bid = Arc::new(self.shared.bid(claim, &place.id));
        let sent = Moment::now();
        match self.shared.ask(claim, &place, &bid, false, false).await? {
            Asked::Granted(token) => {
                Ok(Some(self.grant(place, bid, Got::by_asking(token, sent, claim))))
            }
            Asked::Uncovered(mode) => Err(mode.upgrade_refused(&claim.name, claim.mode)),
            Asked::Busy | Asked::Queued { .. } => Ok(None),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let place = self.shared.place(claim);
        let released = self.shared.release(&place, Duration::ZERO, true, None).await?;
        self.shared.tell_granted(&place.keys.lock, released.next);
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.url)
    }
}

/// Where a claim is in the store: the keys of its name, and the id it goes by there.
#[derive(Debug)]
struct Place {
    keys: Keys,
    id: String,
    /// Unless it is given up only.
    owned: Option<Arc<Owned>>,
}

/// What was granted.
#[derive(Debug)]
struct Got {
    token: u64,
    vouched: Vouched,
    tenure: Option<Arc<Tenure>>,
}

impl Got {
    /// By an answer to a request sent then, for the whole ttl.
    fn by_asking(token: u64, sent: Moment, claim: &Claim) -> Self {
        Self { token, vouched: Vouched { sent, valid_for: claim.ttl }, tenure: None }
    }
}

/// A claim of this keeper whose turn it is, by the answer to a request sent at `since`.
#[derive(Debug)]
struct Granted {
    id: String,
    token: u64,
    since: Moment,
    heirs: Vec<String>,
}

/// What became of giving a claim back.
#[derive(Debug, Default)]
struct Released {
    /// Those of this keeper whose turn it is now, to be told.
    next: Vec<Granted>,
    /// Why the store did not have it any more.
    lost: Option<LossReason>,
}

/// What the store may not have heard of one that gives its claim back.
#[derive(Debug)]
struct Unheard<'a> {
    token: u64,
    /// Who may be on record in its place.
    before: &'a [String],
}

#[async_trait]
impl Inspector for Queue {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        view::list(&self.shared, prefix).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        view::show(&self.shared, name).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<HolderView>> {
        view::holders(&self.shared, name).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        let keys = Keys::new(&self.shared.prefix, name);
        let token = token.to_string();
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let request = format!("{}{number:x}", self.shared.keeper);
        let arguments = [token.as_bytes(), reason.as_bytes(), request.as_bytes()];
        let script = &self.shared.scripts.break_hold;
        match self.shared.link.call(script, &keys.all(), &arguments).await? {
            Value::Int(broken) => Ok(broken > 0),
            other => Err(strange(&other)),
        }
    }
}

#[async_trait]
impl Sequencer for Queue {
    async fn reserve(&self, name: &Name, count: u32, floor: u64) -> Result<u64> {
        sequence::reserve(&self.shared.link, &self.shared.prefix, name, count, floor).await
    }
}

impl Released {
    fn lost(reason: LossReason) -> Self {
        Self { next: Vec::new(), lost: Some(reason) }
    }
}

impl Shared {
    fn place(&self, claim: &Claim) -> Place {
        let (keys, id) = (Keys::new(&self.prefix, &claim.name), claim.id.to_string());
        Place { keys, id, owned: None }
    }

    /// As [`place`](Self::place), for a claim that is about to be made.
    fn own_place(&self, claim: &Claim) -> Place {
        let place = self.place(claim);
        Place { owned: Some(self.roll.claims.enter(&place.id)), ..place }
    }

    async fn renew(&self, Place { keys, id, .. }: &Place, ttl: Duration) -> Result<Standing> {
        let ttl = ttl.as_millis().to_string();
        let arguments = [id.as_bytes(), ttl.as_bytes()];
        let script = &self.scripts.renew;
        match self.link.call_safely(script, &keys.all(), &arguments, &arguments).await? {
            Value::Int(1) => Ok(Standing::Held),
            Value::Array(words) => Ok(Standing::Lost(match &words[..] {
                [_, Value::BulkString(reason)] => {
                    LossReason::Broken { reason: String::from_utf8_lossy(reason).into_owned() }
                }
                _ => LossReason::Gone,
            })),
            other => Err(strange(&other)),
        }
    }

    async fn release(
        &self,
        Place { keys, id, .. }: &Place,
        linger: Duration,
        may_be_queued: bool,
        unheard: Option<Unheard<'_>>,
    ) -> Result<Released> {
        let linger = linger.as_millis().to_string();
        // The driver of a cluster repeats what was not answered, and the grants that the first
        // answer told of would be lost: there they come by message.
        let hears = if self.link.route.is_cluster() { "" } else { &self.keeper };
        let terms = |flag: u8| [&[flag], &flags([self.barging])[..], hears.as_bytes()].concat();
        let first = terms(if may_be_queued { b'1' } else { b'0' });
        let repeated = terms(if may_be_queued { b'1' } else { b'2' });
        let said = |Unheard { token, before }| (token.to_string(), with_blanks(before));
        let (token, before) = unheard.map(said).unwrap_or_default();
        let arguments =
            [id.as_bytes(), linger.as_bytes(), &first, token.as_bytes(), before.as_bytes()];
        let mut again = arguments;
        again[2] = &repeated;
        let count = if before.is_empty() { 3 } else { 5 };
        let (script, keys, sent) = (&self.scripts.release, keys.all(), Moment::now());
        let answer = self.link.call_telling(script, &keys, &arguments[..count], &again[..count]);
        let answer = answer.await?;
        let words = match &answer {
            Value::Array(words) => words,
            Value::Int(0) => return Ok(Released::lost(LossReason::Gone)),
            Value::BulkString(reason) => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                return Ok(Released::lost(LossReason::Broken { reason }));
            }
            _ => return Ok(Released::default()),
        };
        let granted = words.chunks_exact(2);
        let (mut heirs, lost) = match granted.remainder() {
            [Value::Array(heirs)] => (ids(heirs).unwrap_or_default(), None),
            [Value::Int(0)] => (Vec::new(), Some(LossReason::Gone)),
            _ => (Vec::new(), None),
        };
        let granted = granted.filter_map(|granted| {
            let (id, token) = (text(&granted[0])?.to_owned(), token_of(&granted[1])?);
            Some(Granted { id, token, since: sent, heirs: std::mem::take(&mut heirs) })
        });
        Ok(Released { next: granted.collect(), lost })
    }

    /// Tells claims of this keeper that it is their turn.
    fn tell_granted(&self, key: &str, granted: Vec<Granted>) {
        for Granted { id, token, since, heirs } in granted {
            self.roll.granted_since(key, &id, token, Some(since), heirs);
        }
    }
}

/// Removes a claim that nobody has, where nobody waits who could do so.
fn remove(shared: &Weak<Shared>, key: &str, id: &str) {
    let (Some(shared), Ok(runtime)) = (shared.upgrade(), Handle::try_current()) else { return };
    let Some(Ok(name)) = Keys::name_of(&shared.prefix, key) else { return };
    let strays = [id.to_owned()];
    runtime.spawn(async move {
        let keys = Keys::new(&shared.prefix, &name);
        if let Err(error) = shared.disown(&keys.all(), &strays).await {
            tracing::debug!(%error, "a claim that nobody has was not removed");
        }
    });
}

/// Yes and no, a letter each.
fn flags<const N: usize>(set: [bool; N]) -> [u8; N] {
    set.map(|set| if set { b'1' } else { b'0' })
}
