//! `recipe=queue`: an ordered queue of claims, those at its head hold the name.
//!
//! What must stay true, and where that is seen to:
//!
//! - A claim is held only by an atomic step of a script, or by local hand-over from a claim that is
//!   (`ask.lua`, `advance` in `lib.lua`, `local_handover.rs`).
//! - Its validity counts from before the request was sent that won, or that last found it waiting
//!   (`LastSeen`), and never from a message.
//! - Every request names the claim's id, and does nothing to any other: so all can be repeated, and a
//!   late one finds nothing.
//! - Tokens grow, also when the clock goes back, Redis forgets, or claims are handed over locally.
//! - A claim is on the list of waiters before it asks, and among this keeper's own claims from
//!   before it asks until it is given back: so nothing that Redis says of it comes too early, and what Redis says
//!   of others is of nobody.
//! - Every key expires, every wait has a limit, and a message that is lost costs a heartbeat.
//!
//! An uncontended acquire and release go through `mod.rs`, `requests.rs` (with `keys.rs`), `waiters.rs`
//! and `lease.rs`, the client's `mod.rs`, `node.rs` and `batch.rs`, and the common cases `ask.lua` and
//! `release.lua`: two round trips.
//!
//! ```text
//!   mod.rs            Backend: asks once, and waits if the answer is "queued"
//!   wait.rs           waiting: wakeups, patience, the heartbeat
//!   lease.rs          a held claim: renewed, given back, or handed over locally
//!   requests.rs       every script, one function each
//!   waiters.rs        this keeper's waiting claims, and how they are woken
//!   heartbeat.rs      one heartbeat per name for all of them
//!   local_handover.rs from one claim of a keeper to the next without a round trip
//!   own_claims.rs     which claims this keeper has, so that strays can be told apart
//! ```

mod answers;
mod heartbeat;
mod inspect;
mod last_tokens;
mod lease;
mod local_handover;
mod own_claims;
mod record;
mod requests;
mod scripts;
mod wait;
mod waiters;

use super::client::{Client, Subscriber};
use super::keys::Keys;
use super::rights::{self, Wanted};
use super::sequence::Numbers;
use crate::backend::{
    Backend, Capability, Claim, ClaimId, FencingToken, Finding, Grant, HolderView, Inspector,
    Lease, LockView, Moment, Name, Page, Patience, Reserve, Reserved, Sequencer, Ticket,
};
use crate::error::Result;
use async_trait::async_trait;
use lease::QueueLease;
use local_handover::{Chain, Validity};
use requests::{Asked, Entry, Promoted, Request, Requests};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use waiters::{LastSeen, Remove, Waiters};

/// The queue in Redis: one per keeper, with two connections.
#[derive(Debug)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    numbers: Numbers,
}

/// What a backend and its leases share.
///
/// Leases hold it strongly: a claim outlives the keeper's handle, and is given back through it. The
/// client's and the subscriber's callbacks hold only the waiters, so that the connections end with the
/// last lease.
#[derive(Debug)]
struct Shared {
    requests: Requests,
    subscriber: Arc<Subscriber>,
    waiters: Arc<Waiters>,
    url: String,
}

/// How a queue is to be.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) prefix: String,
    /// This keeper's own name in Redis.
    pub(super) keeper: String,
    pub(super) barging: bool,
    /// The store for people, without secrets.
    pub(super) url: String,
}

/// What was granted, and what it is known by.
#[derive(Debug)]
struct Granted {
    token: u64,
    validity: Validity,
    /// Where other claims of this keeper are next in the queue, or were before.
    chain: Option<Arc<Chain>>,
}

impl Queue {
    /// Checks what the user may do, and subscribes to this keeper's channel: a keeper that cannot be
    /// told of its grants and losses is refused here, and not found out later.
    pub(super) async fn open(client: Client, settings: Settings) -> Result<Self> {
        let Settings { prefix, keeper, barging, url } = settings;
        let rights = wanted(&client, &prefix).look_up(&client).await?;
        rights::judge(&rights, client.connector.shown())?;
        let waiters = Arc::new(Waiters::default());
        let told = waiters.clone();
        client.lost.register(move || told.disconnected());
        let channel = format!("{prefix}keeper:{keeper}");
        let told = waiters.clone();
        let on_notice = move |notice: super::client::Notice<'_>| told.on_notice(notice);
        let connector = client.connector.clone();
        let subscriber = Arc::new(Subscriber::new(connector, channel, false, on_notice));
        subscriber.ensure().await?;
        let numbers = Numbers::new(&prefix);
        let requests = Requests::new(client, prefix, keeper, barging);
        let shared = Arc::new(Shared { requests, subscriber, waiters, url });
        // Not strongly: the waiters are part of it.
        let weak = Arc::downgrade(&shared);
        shared.waiters.remove_by(Remove(Box::new(move |key, id| remove(&weak, key, id))));
        Ok(Self { shared, numbers })
    }

    /// Notes the token, and makes the lease.
    fn grant(&self, entry: Entry, request: Arc<Request>, granted: Granted) -> Grant {
        let Granted { token, validity, .. } = granted;
        self.shared.requests.last_tokens.granted(&entry.keys.lock, token);
        let lease = QueueLease::new(self.shared.clone(), entry, request, granted);
        let Validity { sent, valid_for } = validity;
        Grant { lease: Box::new(lease), token: FencingToken::new(token), sent, valid_for }
    }
}

#[async_trait]
impl Backend for Queue {
    fn capability(&self) -> Capability {
        let fair = !self.shared.requests.is_barging();
        Capability { fair, ..crate::recipes::REDIS_QUEUE }
    }

    /// One request, and nothing more if the name is free. The rest is in `wait.rs`.
    fn recipe(&self) -> &'static str {
        "queue"
    }

    async fn acquire(&self, claim: &Claim, patience: &Patience) -> Result<Option<Grant>> {
        let shared = &*self.shared;
        let entry = shared.own_entry(&claim.name, claim.id);
        let request = Arc::new(shared.requests.request(claim, &entry.id));
        let may_wait = !patience.is_over();
        // On the list before it asks: the wakeup may overtake the answer that it has to wait.
        let waiting =
            may_wait.then(|| shared.waiters.wait_for(&entry.keys.lock, &entry.id, &request));
        let sent = Moment::now();
        let woken = waiting.as_ref().map(|waiting| waiting.expect(Some(LastSeen::unseen(sent))));
        let asked = shared.requests.ask(claim, &entry, &request, may_wait, false).await;
        let outcome = match (asked, &waiting, woken) {
            (Ok(Asked::Granted(token)), waiting, _) => {
                waiting.iter().for_each(|waiting| waiting.heartbeat.granted(token));
                Ok(Some(self.grant(entry, request, Granted::by_asking(token, sent, claim))))
            }
            (asked, Some(waiting), Some(woken)) => {
                self.wait(claim, entry, request, patience, waiting, (asked, sent, woken)).await
            }
            (Ok(Asked::Uncovered(mode)), ..) => Err(mode.upgrade_refused(&claim.name, claim.mode)),
            (Ok(Asked::OtherTerms(mode, ttl)), ..) => {
                claim.refuse_other_terms(mode, Some(ttl)).map(|()| None)
            }
            (asked, ..) => asked.map(|_| None),
        };
        if let Some(waiting) = waiting {
            waiting.end();
        }
        outcome
    }

    /// Out of the queue, or given back, wherever the claim is. This can let others of this keeper in,
    /// which are woken by the answer.
    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let entry = self.shared.entry(&claim.name, claim.id);
        let released = self.shared.requests.release(&entry, Duration::ZERO, true, None).await?;
        self.shared.wake_promoted(&entry.keys.lock, released.next);
        Ok(())
    }

    /// Ends both connections, with their tasks. Called when nothing is held or waited for; what comes
    /// later connects again.
    async fn close(&self) -> Result<()> {
        self.shared.subscriber.close().await;
        self.shared.requests.client.close();
        Ok(())
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn sequencer(&self) -> Option<&dyn Sequencer> {
        Some(self)
    }

    fn keys(&self, name: &Name) -> Vec<String> {
        Keys::new(&self.shared.requests.prefix, name).all().map(str::to_owned).into()
    }

    /// The claim stays the keeper's that has it, unless this one takes it over.
    fn lease_of(&self, ticket: &Ticket) -> Option<Box<dyn Lease>> {
        let entry = self.shared.own_entry(&ticket.name, ticket.id);
        Some(Box::new(QueueLease::of_ticket(self.shared.clone(), entry, ticket.ttl)))
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

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.url)
    }
}

#[async_trait]
impl Inspector for Queue {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        inspect::list(&self.shared.requests, prefix).await
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        inspect::list_page(&self.shared.requests, prefix, after, limit).await
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        inspect::show(&self.shared.requests, name).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<HolderView>> {
        inspect::holders(&self.shared.requests, name).await
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        self.shared.requests.break_hold(name, token, reason).await
    }
}

#[async_trait]
impl Sequencer for Queue {
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved> {
        self.numbers.reserve(&self.shared.requests.client, name, wish).await
    }

    async fn read(&self, name: &Name) -> Result<Option<String>> {
        self.numbers.read(&self.shared.requests.client, name).await
    }

    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool> {
        self.numbers.write(&self.shared.requests.client, name, value, expected).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>> {
        self.numbers.list(&self.shared.requests.client, prefix).await
    }

    async fn time(&self) -> Result<Option<SystemTime>> {
        self.numbers.time(&self.shared.requests.client).await
    }
}

impl Granted {
    /// By an answer to a request sent then, for the whole ttl.
    fn by_asking(token: u64, sent: Moment, claim: &Claim) -> Self {
        Self { token, validity: Validity { sent, valid_for: claim.ttl }, chain: None }
    }
}

impl Shared {
    /// Where a claim is in Redis.
    fn entry(&self, name: &Name, id: ClaimId) -> Entry {
        Entry { keys: Keys::new(&self.requests.prefix, name), id: id.to_string(), owned: None }
    }

    /// As [`entry`](Self::entry), of a claim that this keeper has from now on.
    fn own_entry(&self, name: &Name, id: ClaimId) -> Entry {
        let entry = self.entry(name, id);
        Entry { owned: Some(self.waiters.claims.enter(&entry.id)), ..entry }
    }

    /// Wakes claims of this keeper whose turn it is.
    fn wake_promoted(&self, key: &str, promoted: Vec<Promoted>) {
        for Promoted { id, token, since, successors } in promoted {
            self.waiters.granted(key, &id, token, Some(since), successors);
        }
    }
}

/// What the user has to be let do. Every command of every script is listed: a right that is missing
/// would otherwise be found out in the midst of one.
fn wanted(client: &Client, prefix: &str) -> Wanted {
    let (lock, channel) = (format!("{prefix}{{lock}}"), format!("{prefix}keeper:0"));
    let commands = [
        "get", "set", "del", "exists", "setrange", "pttl", "pexpire", "hget", "hset", "hdel",
        "hgetall", "hlen", "rpush", "lpush", "lpop", "lrange", "lindex", "llen", "lrem", "lset",
    ];
    let wanted = Wanted::default()
        .on_key(&lock, &commands)
        .needs(&["evalsha", "0", "0"])
        .needs(&["time"])
        .needs(&["subscribe", &channel])
        .needs_if(client.asks_replicas(), &["wait", "0", "0"])
        .needs_if(client.connector.has_sentinels(), &["role"])
        .likes(
            &["publish", &channel, "0"],
            "a waiter is told nothing, and finds out up to 600 ms late that it is its turn",
        )
        .likes(&["scan", "0"], "locks cannot be listed");
    Numbers::wanted(wanted, prefix)
}

/// Removes a stray claim of a name that no claim of this keeper waits for. In a task of its own:
/// this is called by the connection's task, which must go on reading.
fn remove(shared: &Weak<Shared>, key: &str, id: &str) {
    let (Some(shared), Ok(runtime)) = (shared.upgrade(), Handle::try_current()) else { return };
    let Some(Ok(name)) = Keys::name_of(&shared.requests.prefix, key) else { return };
    let strays = [id.to_owned()];
    runtime.spawn(async move {
        let keys = Keys::new(&shared.requests.prefix, &name);
        if let Err(error) = shared.requests.disown(&keys, &strays).await {
            tracing::debug!(%error, "a claim that nobody has was not removed");
        }
    });
}
