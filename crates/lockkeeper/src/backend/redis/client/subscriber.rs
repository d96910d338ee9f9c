//! The one connection of a keeper that messages arrive on; in a cluster, perhaps one to each node.

use super::channels::{Attention, Channels};
use super::roll::{Roll, lock};
use super::route::{Route, Wire};
use crate::backend::{LossReason, Moment};
use crate::error::Result;
use redis::{PushInfo, PushKind, Value};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// How many channels nobody listens to any more may stay subscribed to: most locks that were
/// waited for are waited for again.
const MOST_IDLE: usize = 32;

/// Hears what is said on the keeper's own channel and passes it on to the roll.
///
/// A channel per keeper, not per lock: however many locks are waited for, there is one
/// subscription, and a message wakes the one it is for. Recipes that others share have channels
/// of their own, on the same connection.
pub(super) struct Listener {
    route: Arc<Route>,
    channel: String,
    /// Whether locks of a cluster have their messages on the node that they are on.
    shards: bool,
    roll: Arc<Roll>,
    pub(super) channels: Arc<Channels>,
    /// The number of the connection that is subscribed; zero when none is.
    listening: Arc<AtomicU64>,
    connection: Mutex<Current>,
    /// When [`check_every`](Self::check_every) checked it last.
    checked: std::sync::Mutex<Option<Moment>>,
}

#[derive(Default)]
struct Current {
    number: u64,
    connection: Option<Wire>,
    subscribed: Arc<Subscribed>,
}

/// What a connection is subscribed to, besides the keeper's own channel. A cluster ends what is
/// subscribed at a node when the lock moves to another.
type Subscribed = std::sync::Mutex<HashSet<String>>;

impl Listener {
    pub(super) fn new(route: Arc<Route>, channel: String, roll: Arc<Roll>) -> Self {
        let (channels, listening, connection) = (Arc::default(), Arc::default(), Mutex::default());
        let checked = std::sync::Mutex::default();
        Self { route, channel, shards: false, roll, channels, listening, connection, checked }
    }

    /// With `shards`, what locks of a cluster say is heard on the node that they are on.
    pub(super) fn at_shards(self, shards: bool) -> Self {
        Self { shards, ..self }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire) != 0
    }

    /// Connects and subscribes, unless that is so already.
    pub(super) async fn ensure(&self) -> Result<()> {
        if self.is_listening() {
            return Ok(());
        }
        let mut current = self.connection.lock().await;
        if self.is_listening() {
            return Ok(());
        }
        let number = current.number + 1;
        *current = Current { number, ..Current::default() };
        let ear = Ear {
            number,
            subscribed: current.subscribed.clone(),
            own: self.channel.clone(),
            roll: self.roll.clone(),
            channels: self.channels.clone(),
            listening: self.listening.clone(),
        };
        let explain = |error| self.route.explain(error);
        let hear = move |push| ear.hear(&push);
        let mut fresh = self.route.connect_listening(self.shards, hear).await.map_err(explain)?;
        fresh.subscribe(&self.channel).await.map_err(explain)?;
        current.connection = Some(fresh);
        self.listening.store(number, Ordering::Release);
        drop(current);
        // What was said before we listened was not heard; and whoever wants to hear more than our
        // own channel has to subscribe to it again.
        self.roll.hurry();
        self.channels.hurry();
        Ok(())
    }

    /// Subscribes to what `attention` is paid to, unless that is so already; confirmed when this
    /// returns.
    pub(super) async fn subscribe(&self, attention: &Attention) -> Result<()> {
        let mut current = loop {
            self.ensure().await?;
            let current = self.connection.lock().await;
            if current.connection.is_some() {
                break current;
            }
        };
        let Current { connection: Some(connection), subscribed, .. } = &mut *current else {
            return Ok(());
        };
        let new: Vec<String> = {
            let mut subscribed = lock(subscribed);
            // Before it is so: should it end at once, that is heard after this.
            let new = attention.names.iter().filter(|name| subscribed.insert((*name).clone()));
            new.cloned().collect()
        };
        if !new.is_empty()
            && let Err(error) = connection.subscribe_to_lock(&new).await
        {
            lock(subscribed).retain(|name| !new.contains(name));
            return Err(self.route.explain(error));
        }
        let mut idle: Vec<String> = lock(subscribed).iter().cloned().collect();
        idle.retain(|name| !self.channels.has(name));
        if idle.len() > MOST_IDLE {
            let done = connection.unsubscribe_from_locks(&idle).await;
            lock(subscribed).retain(|name| !idle.contains(name));
            done.map_err(|error| self.route.explain(error))?;
        }
        Ok(())
    }

    /// Tries to listen again, for so long at most: whoever renews must not be late because of it.
    pub(super) async fn try_for(&self, limit: Duration) {
        if !self.is_listening() {
            let _ = tokio::time::timeout(limit, self.ensure()).await;
        }
    }

    /// Checks the connection in the background, unless that was done lately: whoever asks for it
    /// may not be there for long enough.
    pub(super) fn check_every(self: &Arc<Self>, pause: Duration) {
        let now = Moment::now();
        let mut checked = lock(&self.checked);
        if checked.is_none_or(|checked| now.since(checked) >= pause) {
            *checked = Some(now);
            let this = self.clone();
            tokio::spawn(async move { this.check().await });
        }
    }

    /// Finds out whether the connection still is one: nothing else would tell of a peer that
    /// vanished without a word.
    pub(super) async fn check(&self) {
        let current = self.connection.lock().await;
        let (number, connection) = (current.number, current.connection.clone());
        drop(current);
        let Some(mut connection) = connection else { return };
        let answer: redis::RedisResult<Value> =
            redis::cmd("PING").query_async(&mut connection).await;
        if answer.is_err() {
            went_deaf(&self.listening, number);
        }
    }
}

/// What the connection's driver calls with every message; dropped with it.
struct Ear {
    number: u64,
    subscribed: Arc<Subscribed>,
    own: String,
    roll: Arc<Roll>,
    channels: Arc<Channels>,
    listening: Arc<AtomicU64>,
}

impl Ear {
    fn hear(&self, push: &PushInfo) -> Result<(), ()> {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                if let [Value::BulkString(channel), Value::BulkString(text)] = &push.data[..] {
                    if channel == self.own.as_bytes() {
                        self.pass_on(&String::from_utf8_lossy(text));
                    } else {
                        self.channels.heard(&String::from_utf8_lossy(channel));
                    }
                }
            }
            // Of any node of a cluster: the driver would connect again by itself, but not say
            // when it is subscribed again.
            PushKind::Disconnection => self.went_deaf(),
            // Perhaps unasked, because the lock moved: who listens subscribes again.
            PushKind::SUnsubscribe => {
                if let Some(Value::BulkString(channel)) = push.data.first() {
                    let channel = String::from_utf8_lossy(channel);
                    lock(&self.subscribed).remove(&*channel);
                    self.channels.heard(&channel);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// `granted ID TOKEN KEY`, `broken ID REASON`, `try ID`, `whose ID KEY`.
    fn pass_on(&self, message: &str) {
        let mut words = message.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("granted"), Some(id), Some(rest)) => {
                let (token, key) = rest.split_once(' ').unwrap_or((rest, ""));
                if let Ok(token) = token.parse() {
                    self.roll.granted(key, id, token);
                }
            }
            (Some("whose"), Some(id), Some(key)) => self.roll.named(key, id),
            (Some("broken"), Some(id), reason) => {
                let reason = reason.unwrap_or_default().to_owned();
                self.roll.ring(id, LossReason::Broken { reason });
            }
            (Some("try"), Some(id), _) => self.roll.tell(id, super::roll::Called::AskAgain),
            _ => tracing::debug!(message, "a message that is none of ours"),
        }
    }

    fn went_deaf(&self) {
        if went_deaf(&self.listening, self.number) {
            self.roll.hurry();
            self.channels.hurry();
        }
    }
}

/// Whether it was that connection, and no later one, that was listening.
fn went_deaf(listening: &AtomicU64, number: u64) -> bool {
    listening.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl Drop for Ear {
    fn drop(&mut self) {
        // The driver ended, perhaps with the runtime it ran on.
        self.went_deaf();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("channel", &self.channel).finish_non_exhaustive()
    }
}
