//! What all claims of a keeper share, and the one way in which a name with several claims changes.

use super::client::BREAKS;
use super::error::Failure;
use super::queue::{CROWD, Queue};
use super::record::{Granted, HANDED, HELD, Record, Seen, WAITER_LEASE, WAITING, token_of};
use super::requests::{Next, Requests};
use super::waiters::{WaitEnd, Waiters};
use crate::backend::support::sync::lock;
use crate::backend::{Background, LossReason, Moment};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How often heartbeats are sent while something waits: four fit into what a waiter's row lasts.
pub(super) const BEAT: Duration = Duration::from_millis(500);
/// How often a name is looked at, at least, while it is waited for.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// How often a change is decided anew because another keeper changed the name in between. Each time
/// another got through.
pub(super) const TRIES: u32 = 500;

/// What all claims of a keeper share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) requests: Arc<dyn Requests>,
    /// The id of this keeper: rows with it are looked after here. Random, so no other has it.
    pub(super) process: String,
    pub(super) waiters: Waiters,
    pub(super) background: Background,
    /// One change of a name at a time in this keeper: others would only be decided in vain.
    gates: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    heart: tokio::sync::Mutex<Heart>,
    /// Whether the driver runs.
    pub(super) driving: Mutex<bool>,
    /// When the tables were last cleaned by this keeper.
    pub(super) cleaned: Mutex<Moment>,
    /// Ends with the keeper.
    pub(super) gone: CancellationToken,
    _goes: DropGuard,
}

/// The heartbeats of this keeper.
#[derive(Debug, Default)]
struct Heart {
    /// When the last one was sent that was answered.
    last: Option<Moment>,
    /// Since when none was late, by the database's clock.
    since: Option<i64>,
}

/// What came of a change.
#[derive(Debug)]
pub(super) struct Changed<T> {
    pub(super) outcome: T,
    /// A moment before the clock was read that the change was decided by.
    pub(super) sent: Moment,
    /// Whether the name has several claims now.
    pub(super) crowded: bool,
    /// Whether an answer was lost: the outcome may be that of a change that was carried out already.
    pub(super) doubted: bool,
}

impl Context {
    pub(super) fn new(
        requests: Arc<dyn Requests>,
        process: String,
        background: &Background,
    ) -> Self {
        let gone = CancellationToken::new();
        Self {
            requests,
            process,
            waiters: Waiters::default(),
            background: background.clone(),
            gates: Mutex::default(),
            heart: tokio::sync::Mutex::default(),
            driving: Mutex::new(false),
            cleaned: Mutex::new(Moment::now()),
            _goes: gone.clone().drop_guard(),
            gone,
        }
    }

    /// The library's error for a failure.
    pub(super) fn explain(&self, failure: Failure) -> Error {
        failure.explain(self.requests.shown())
    }

    /// Reads a name, decides, and writes the change down unless another came first: then all over
    /// again. Waiters of this keeper that were granted are told. `None` for a name without a row.
    ///
    /// `id` is the claim that must be among those that are read. With `anyway` the name counts as
    /// changed even if it is not, so that no change that was decided before can be carried out
    /// after this.
    pub(super) async fn change<T>(
        self: &Arc<Self>,
        name: &str,
        id: &str,
        anyway: bool,
        decide: impl Fn(&mut Queue) -> T,
    ) -> Result<Option<Changed<T>>, Failure> {
        self.change_in(TRIES, name, id, anyway, decide).await
    }

    /// As [`change`](Self::change), tried so often; [`Failure::Conflict`] when others came first each
    /// time.
    pub(super) async fn change_in<T>(
        self: &Arc<Self>,
        tries: u32,
        name: &str,
        id: &str,
        anyway: bool,
        decide: impl Fn(&mut Queue) -> T,
    ) -> Result<Option<Changed<T>>, Failure> {
        let gate = self.gate(name);
        let _one = gate.lock().await;
        let mut doubts = 0;
        for tries in 0..tries {
            let sent = Moment::now();
            let read = self.requests.read(&self.process, name, id).await?;
            let Some(mut queue) = read else { return Ok(None) };
            let (version, outcome) = (queue.version, decide(&mut queue));
            let (granted, short) = (queue.granted.clone(), queue.is_short());
            let crowded = queue.place == CROWD;
            let Some(change) = queue.change(anyway) else {
                return Ok(Some(Changed { outcome, sent, crowded, doubted: doubts > 0 }));
            };
            match self.requests.apply(name, version, &change).await {
                Ok(true) => {
                    let crowded = change.place == CROWD;
                    self.tell(name, granted, sent, crowded);
                    if short {
                        self.waiters.look_at(name, Moment::now());
                        self.waiters.wake.notify_one();
                    }
                    return Ok(Some(Changed { outcome, sent, crowded, doubted: doubts > 0 }));
                }
                Ok(false) => pause(tries).await,
                // Whether it was carried out is found by reading again.
                Err(failure) if failure.allows_second_try() && doubts < BREAKS => doubts += 1,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Conflict("others changed the name each time".to_owned()))
    }

    /// Tells waiters of this keeper that they hold the name; gives back what nobody waits for.
    fn tell(self: &Arc<Self>, name: &str, granted: Vec<Record>, sent: Moment, crowded: bool) {
        for record in granted {
            let told = Granted { token: record.fencing_token(), sent, crowded };
            if !self.waiters.tell(&record.id, WaitEnd::Granted(told)) {
                self.give_back(name, record.seen());
            }
        }
    }

    /// Gives back, in one request, a claim that alone holds a name for which others wait, and lets the
    /// next one in; whether it did. If not, nothing is changed, and the queue has to be read.
    pub(super) async fn hand_on(self: &Arc<Self>, name: &str, id: &str) -> Result<bool, Failure> {
        let sent = Moment::now();
        let handed = self.requests.hand_on(name, id, &self.process).await;
        match &handed {
            // Told by the server, or found out by itself.
            Ok(Some(Next { ours: false, .. }) | None) => {}
            Ok(Some(Next { seen, .. })) => {
                let granted = Granted { token: token_of(seen.ticket), sent, crowded: true };
                if self.waiters.tell(&seen.id, WaitEnd::Granted(granted)) {
                    // The one who was let in runs first. If this caller asks for the name again at
                    // once, as in a loop, its place in the queue is not written before the next
                    // release, which would have to wait for it.
                    tokio::task::yield_now().await;
                } else {
                    self.give_back(name, seen.clone());
                }
            }
            // It may have been carried out, and then the next one does not know.
            Err(_) => {
                self.waiters.look_again(name, Moment::now());
                self.waiters.wake.notify_one();
            }
        }
        handed.map(|next| next.is_some())
    }

    /// Removes, in the background, a claim of this keeper that nobody waits for any more.
    fn give_back(self: &Arc<Self>, name: &str, seen: Seen) {
        let (context, name) = (self.clone(), name.to_owned());
        self.background.spawn(async move {
            let remove = |queue: &mut Queue| queue.remove_as_seen(&seen);
            let removed = context.change(&name, &seen.id, false, remove).await;
            if let Err(failure) = removed {
                // It expires by itself.
                let error = context.explain(failure);
                tracing::debug!(%error, "a claim that nobody waits for stays until it expires");
            }
        });
    }

    /// Tells the holder of a broken claim, and removes what is left of it.
    pub(super) fn ring(self: &Arc<Self>, name: String, id: String, reason: String) {
        self.waiters.ring(&id, LossReason::Broken { reason });
        let context = self.clone();
        self.background.drive(async move {
            let remove = |queue: &mut Queue| queue.remove_broken(&id);
            // What fails here is found again by the next look, or expires.
            let _ = context.change(&name, "", false, remove).await;
            context.let_go_if_closed();
        });
    }

    /// Looks at a name that is waited for: drops what expired, lets the next in, tells those of
    /// this keeper that were granted something; and when to look again.
    pub(super) async fn look(self: &Arc<Self>, name: &str) -> Result<Option<Duration>, Failure> {
        let looked = self.change(name, "", false, |queue| {
            queue.advance();
            let ours = queue.records.iter().filter(|it| it.process == self.process);
            let ours: Vec<Record> = ours.cloned().collect();
            let fresh: Vec<String> = queue.granted.iter().map(|it| it.id.clone()).collect();
            (ours, fresh, queue.until_expiry())
        });
        let looked = looked.await?;
        self.find_missing(name).await?;
        let Some(Changed { outcome: (ours, fresh, until_expiry), .. }) = looked else {
            // The name was cleaned away, with the waiters for it.
            return Ok(None);
        };
        for record in ours.into_iter().filter(|record| !fresh.contains(&record.id)) {
            let told = match record.state {
                // Handed over by another, or granted by an answer that was lost.
                HELD | HANDED => self.waiters.tell(&record.id, WaitEnd::Handed),
                _ => self.waiters.is_waiting(&record.id),
            };
            if !told && matches!(record.state, HANDED | WAITING) {
                self.give_back(name, record.seen());
            }
        }
        Ok(Some(until_expiry))
    }

    /// Tells waiters of this keeper whose rows are gone that they may queue again: one that was handed
    /// the name and did not confirm in time is removed by the next look at the name.
    async fn find_missing(&self, name: &str) -> Result<(), Failure> {
        // Read first: who is among these has a row unless it was removed.
        let queued = self.waiters.queued_for(name);
        if queued.is_empty() {
            return Ok(());
        }
        let there = self.requests.claims_of(&self.process, name).await?;
        let there: HashSet<String> = there.into_iter().collect();
        for id in queued.iter().filter(|id| !there.contains(*id)) {
            self.waiters.tell(id, WaitEnd::Dropped);
        }
        Ok(())
    }

    /// Sends a heartbeat unless one was answered lately. A waiter's row counts only together with
    /// the heartbeat of its keeper, so this comes before the row.
    pub(super) async fn beat(&self, unless_within: Duration) -> Result<(), Failure> {
        let mut heart = self.heart.lock().await;
        let now = Moment::now();
        if heart.last.is_some_and(|last| now.since(last) < unless_within) {
            return Ok(());
        }
        let since = self.requests.beat(&self.process).await?;
        heart.last = Some(now);
        if heart.since.replace(since).is_some_and(|known| known != since) {
            // Others took this keeper for dead meanwhile, and removed its waiters.
            self.waiters.tell_all(|| WaitEnd::Dropped);
        }
        drop(heart);
        self.waiters.beaten();
        Ok(())
    }

    /// Tells all waiters that the store cannot be reached, if it has not been for longer than their
    /// rows last.
    pub(super) async fn fail_if_silent(&self, error: &Error) {
        let last = self.heart.lock().await.last;
        if last.is_none_or(|last| Moment::now().since(last) > WAITER_LEASE) {
            let copy = || Error::new(error.kind(), error.to_string());
            self.waiters.tell_all(|| WaitEnd::Failed(copy()));
        }
    }

    /// Lets go of connections that work of the driver's made, or kept, after the keeper was closed.
    pub(super) fn let_go_if_closed(&self) {
        if self.waiters.is_closing() && !self.waiters.has_waiters() {
            self.requests.disconnect();
        }
    }

    /// Whether this keeper may have a row for its heartbeats.
    pub(super) async fn has_heart(&self) -> bool {
        self.heart.lock().await.last.is_some()
    }

    /// The gate of a name, made if it is not there; those of names that nobody changes go.
    fn gate(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = lock(&self.gates);
        if gates.len() > 64 {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        gates.entry(name.to_owned()).or_default().clone()
    }
}

/// A moment for the one who came first, longer the more often that happened: at most 13 ms, since
/// with a hundred keepers that try at once each try of one costs all others that much.
pub(super) async fn pause(tries: u32) {
    if tries < 3 {
        return tokio::task::yield_now().await;
    }
    let mut random = [0_u8; 1];
    let _ = getrandom::fill(&mut random);
    let most = 50 << tries.min(8);
    tokio::time::sleep(Duration::from_micros(most * u64::from(random[0]) / 255)).await;
}
