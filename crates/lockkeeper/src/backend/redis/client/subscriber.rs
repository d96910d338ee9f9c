//! The connection of a keeper that messages arrive on; in a cluster, perhaps one to each node.
//!
//! One channel per keeper, not per lock: however many locks are waited for, there is one
//! subscription, and a message wakes only the task it is for. Recipes whose channels are shared with
//! other libraries subscribe to those as well, on the same connection.
//!
//! ```text
//!   ensure() ──► connect, subscribe ──► subscribed ── Notice::Message …
//!      ▲                                    │
//!      │                                    ├─ push "disconnection", or the driver is dropped
//!      │                                    ├─ check(): PING without an answer
//!      └──────── by the next task ◄── ended ┘  Notice::Disconnected
//!                that needs messages
//! ```
//!
//! Redis keeps no messages for those that are away. So a recipe that waits for one must be able to do
//! without: after [`Notice::Subscribed`] and [`Notice::Disconnected`] it looks for itself.

use super::channels::{Channels, Subscription};
use super::connector::Connector;
use super::message_connection::MessageConnection;
use crate::backend::Moment;
use crate::backend::support::sync::lock;
use crate::error::Result;
use redis::{PushInfo, PushKind, Value};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// How many channels may stay subscribed to that no task listens to any more: most locks that were
/// waited for are waited for again, and to subscribe is a round trip.
const MOST_IDLE: usize = 32;

/// What the subscriber has to say.
#[derive(Debug)]
pub(crate) enum Notice<'a> {
    /// A message on the keeper's own channel.
    Message(&'a str),
    /// The connection broke: from now on messages are missed, and the server may be away.
    Disconnected,
    /// Subscribed, perhaps again: messages from before may have been missed.
    Subscribed,
}

/// Called for every notice, from the connection's task: it must not block.
type OnNotice = Arc<dyn Fn(Notice<'_>) + Send + Sync>;

/// Keeps the keeper subscribed to its own channel, and to others on demand.
pub(crate) struct Subscriber {
    connector: Arc<Connector>,
    channel: String,
    /// Whether channels of a key live on the node of that key.
    sharded: bool,
    on_notice: OnNotice,
    channels: Arc<Channels>,
    /// The number of the connection that is subscribed; zero when none is. By its number a late word of
    /// an old connection is told from one of the present one.
    subscribed: Arc<AtomicU64>,
    connection: Arc<Mutex<Current>>,
    /// After how many messages that no task wanted a channel is left.
    leaves_after: u32,
    /// When [`check_every`](Self::check_every) checked the connection last.
    checked: std::sync::Mutex<Option<Moment>>,
}

/// The connection in use, or that there is none.
#[derive(Default)]
struct Current {
    number: u64,
    connection: Option<MessageConnection>,
    names: Arc<Names>,
}

/// The channels that a connection is subscribed to, besides the keeper's own. A cluster ends a
/// subscription at a node when the key moves to another.
type Names = std::sync::Mutex<HashSet<String>>;

impl Subscriber {
    /// With `sharded`, channels of keys in a cluster are heard at the node that has the key.
    pub(crate) fn new(
        connector: Arc<Connector>,
        channel: String,
        sharded: bool,
        on_notice: impl Fn(Notice<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (channels, subscribed, connection, checked) = Default::default();
        let on_notice = Arc::new(on_notice);
        Self {
            connector,
            channel,
            sharded,
            on_notice,
            channels,
            subscribed,
            connection,
            leaves_after: u32::MAX,
            checked,
        }
    }

    /// Has a channel left on which so many messages came, one after another, while no task wanted any.
    /// For channels that tell of every release: whoever waited for a name once would hear of all of them.
    pub(crate) fn leaving_after(self, messages: u32) -> Self {
        Self { leaves_after: messages, ..self }
    }

    /// Whether the server has this keeper among those that a message on the channel goes to, as far as is
    /// known: while that changes, yes.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        let current = self.connection.try_lock();
        current
            .map_or(true, |current| self.is_subscribed() && lock(&current.names).contains(channel))
    }

    /// Whether messages arrive, as far as is known.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscribed.load(Ordering::Acquire) != 0
    }

    /// Connects and subscribes, unless that is so already.
    pub(crate) async fn ensure(&self) -> Result<()> {
        if self.is_subscribed() {
            return Ok(());
        }
        let mut current = self.connection.lock().await;
        if self.is_subscribed() {
            return Ok(());
        }
        let number = current.number + 1;
        *current = Current { number, ..Current::default() };
        let handler = PushHandler {
            number,
            own: self.channel.clone(),
            names: current.names.clone(),
            channels: self.channels.clone(),
            subscribed: self.subscribed.clone(),
            on_notice: self.on_notice.clone(),
            connection: Arc::downgrade(&self.connection),
            leaves_after: self.leaves_after,
            unwanted: std::sync::Mutex::default(),
        };
        let on_push = move |push| handler.on_push(&push);
        let explain = |error| self.connector.explain(error);
        let opened = self.connector.connect_for_messages(self.sharded, on_push).await;
        let mut connection = opened.map_err(explain)?;
        connection.subscribe(&self.channel).await.map_err(explain)?;
        current.connection = Some(connection);
        self.subscribed.store(number, Ordering::Release);
        drop(current);
        (self.on_notice)(Notice::Subscribed);
        // The new connection has none of the old one's subscriptions: each task has to renew its own.
        self.channels.notify_all();
        Ok(())
    }

    /// Begins a subscription to two channels of one key; [`confirm`](Self::confirm) it.
    pub(crate) fn subscribe(&self, names: [&str; 2]) -> Subscription {
        self.channels.subscribe(names)
    }

    /// Has the server know of the subscription, unless it does already; what is published after this
    /// returns is heard.
    pub(crate) async fn confirm(&self, subscription: &Subscription) -> Result<()> {
        let mut current = loop {
            self.ensure().await?;
            let current = self.connection.lock().await;
            if current.connection.is_some() {
                break current;
            }
        };
        let Current { connection: Some(connection), names, .. } = &mut *current else {
            return Ok(());
        };
        let new: Vec<String> = {
            let mut names = lock(names);
            // Insert before subscribing, so that an immediate unsubscribe push removes it again.
            let new = subscription.names.iter().filter(|name| names.insert((*name).clone()));
            new.cloned().collect()
        };
        if !new.is_empty()
            && let Err(error) = connection.subscribe_sharded(&new).await
        {
            lock(names).retain(|name| !new.contains(name));
            return Err(self.connector.explain(error));
        }
        // Subscriptions are ended in bulk, and late: most are wanted again soon.
        let mut idle: Vec<String> = lock(names).iter().cloned().collect();
        idle.retain(|name| !self.channels.has(name));
        if idle.len() > MOST_IDLE {
            let done = connection.unsubscribe_sharded(&idle).await;
            lock(names).retain(|name| !idle.contains(name));
            done.map_err(|error| self.connector.explain(error))?;
        }
        Ok(())
    }

    /// Tries to subscribe again, within `limit`: a renewal must not be late because of it.
    pub(crate) async fn try_for(&self, limit: Duration) {
        if !self.is_subscribed() {
            let _ = tokio::time::timeout(limit, self.ensure()).await;
        }
    }

    /// Checks the connection in a task of its own, unless that was done within `pause`. The caller
    /// may be gone before the answer.
    pub(crate) fn check_every(self: &Arc<Self>, pause: Duration) {
        let now = Moment::now();
        let mut checked = lock(&self.checked);
        if checked.is_none_or(|checked| now.since(checked) >= pause) {
            *checked = Some(now);
            let this = self.clone();
            tokio::spawn(async move { this.check().await });
        }
    }

    /// Finds out whether the connection still is one: nothing else would tell of a peer that
    /// vanished without closing it.
    pub(crate) async fn check(&self) {
        let current = self.connection.lock().await;
        let (number, connection) = (current.number, current.connection.clone());
        drop(current);
        let Some(mut connection) = connection else { return };
        if connection.ping().await.is_err() {
            ended(&self.subscribed, number);
        }
    }

    /// Ends the connection. It is made again by the next [`ensure`](Self::ensure).
    pub(crate) async fn close(&self) {
        let mut current = self.connection.lock().await;
        ended(&self.subscribed, current.number);
        *current = Current { number: current.number, ..Current::default() };
    }
}

/// What the connection's driver calls with every push; dropped with it.
struct PushHandler {
    number: u64,
    /// The keeper's own channel.
    own: String,
    names: Arc<Names>,
    channels: Arc<Channels>,
    subscribed: Arc<AtomicU64>,
    on_notice: OnNotice,
    /// Weak: the connection has this, and would keep itself.
    connection: Weak<Mutex<Current>>,
    leaves_after: u32,
    /// How many messages came on a channel since a task last wanted one.
    unwanted: std::sync::Mutex<HashMap<String, u32>>,
}

impl PushHandler {
    /// Sorts a push of the server: own channel, other channel, end of a subscription or connection.
    fn on_push(&self, push: &PushInfo) -> Result<(), ()> {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                if let [Value::BulkString(channel), Value::BulkString(text)] = &push.data[..] {
                    if channel == self.own.as_bytes() {
                        (self.on_notice)(Notice::Message(&String::from_utf8_lossy(text)));
                    } else {
                        let channel = String::from_utf8_lossy(channel);
                        let wanted = self.channels.notify(&channel);
                        self.count(&channel, wanted);
                    }
                }
            }
            // Of any node of a cluster: the driver would connect again by itself, but not say when
            // it is subscribed again.
            PushKind::Disconnection => self.disconnected(),
            // Perhaps unasked, because the key moved: the task that listens subscribes again.
            PushKind::SUnsubscribe => {
                if let Some(Value::BulkString(channel)) = push.data.first() {
                    let channel = String::from_utf8_lossy(channel);
                    lock(&self.names).remove(&*channel);
                    self.channels.notify(&channel);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Leaves a channel on which too many messages came that no task wanted.
    fn count(&self, channel: &str, wanted: bool) {
        let mut unwanted = lock(&self.unwanted);
        if wanted {
            unwanted.remove(channel);
            return;
        }
        // Channels that were left in bulk are counted no more.
        if unwanted.len() > MOST_IDLE {
            unwanted.clear();
        }
        let count = unwanted.entry(channel.to_owned()).or_default();
        *count += 1;
        if *count < self.leaves_after {
            return;
        }
        unwanted.remove(channel);
        let (channels, channel) = (self.channels.clone(), channel.to_owned());
        if let (Some(connection), Ok(runtime)) = (self.connection.upgrade(), Handle::try_current())
        {
            runtime.spawn(leave(connection, self.number, channels, channel));
        }
    }

    /// Tells, once, that messages are missed from now on.
    fn disconnected(&self) {
        if ended(&self.subscribed, self.number) {
            (self.on_notice)(Notice::Disconnected);
            self.channels.notify_all();
        }
    }
}

/// Unsubscribes from a channel, unless a task wants it by now. One that begins to want it meanwhile has to
/// wait, and then subscribes again.
async fn leave(
    current: Arc<Mutex<Current>>,
    number: u64,
    channels: Arc<Channels>,
    channel: String,
) {
    let mut current = current.lock().await;
    if current.number != number || channels.has(&channel) {
        return;
    }
    let Current { connection: Some(connection), names, .. } = &mut *current else { return };
    if lock(names).remove(&channel)
        && let Err(error) = connection.unsubscribe_sharded(&[channel]).await
    {
        tracing::debug!(%error, "a channel was not left");
    }
}

/// Notes that the connection with this number is subscribed no more; whether it was that one, and
/// no later one, that was.
fn ended(subscribed: &AtomicU64, number: u64) -> bool {
    subscribed.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl Drop for PushHandler {
    fn drop(&mut self) {
        // The driver ended, perhaps with the runtime it ran on.
        self.disconnected();
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("channel", &self.channel).finish_non_exhaustive()
    }
}
