//! The one connection of a keeper that messages arrive on.

use super::roll::Roll;
use super::route::Route;
use crate::backend::LossReason;
use crate::error::Result;
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Hears what is said on the keeper's own channel and passes it on to the roll.
///
/// A channel per keeper, not per lock: however many locks are waited for, there is one
/// subscription, and a message wakes the one it is for.
pub(super) struct Listener {
    route: Arc<Route>,
    channel: String,
    roll: Arc<Roll>,
    /// The number of the connection that is subscribed; zero when none is.
    listening: Arc<AtomicU64>,
    connection: Mutex<(u64, Option<MultiplexedConnection>)>,
}

impl Listener {
    pub(super) fn new(route: Arc<Route>, channel: String, roll: Arc<Roll>) -> Self {
        Self { route, channel, roll, listening: Arc::default(), connection: Mutex::default() }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire) != 0
    }

    /// Connects and subscribes, unless that is so already.
    pub(super) async fn ensure(&self) -> Result<()> {
        if self.is_listening() {
            return Ok(());
        }
        let mut connection = self.connection.lock().await;
        if self.is_listening() {
            return Ok(());
        }
        let number = connection.0 + 1;
        *connection = (number, None);
        let (roll, listening) = (self.roll.clone(), self.listening.clone());
        let ear = Ear { number, roll, listening };
        let mut fresh = self.route.connect_listening(move |push| ear.hear(&push)).await?;
        fresh.subscribe(&self.channel).await.map_err(|error| self.route.explain(error))?;
        connection.1 = Some(fresh);
        self.listening.store(number, Ordering::Release);
        drop(connection);
        // What was said before we listened was not heard.
        self.roll.hurry();
        Ok(())
    }

    /// Finds out whether the connection still is one: nothing else would tell of a peer that
    /// vanished without a word.
    pub(super) async fn check(&self) {
        let (number, connection) = self.connection.lock().await.clone();
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
    roll: Arc<Roll>,
    listening: Arc<AtomicU64>,
}

impl Ear {
    fn hear(&self, push: &PushInfo) -> Result<(), ()> {
        match push.kind {
            PushKind::Message => {
                if let [_, Value::BulkString(text)] = &push.data[..] {
                    self.pass_on(&String::from_utf8_lossy(text));
                }
            }
            PushKind::Disconnection => self.went_deaf(),
            _ => {}
        }
        Ok(())
    }

    /// `granted ID TOKEN`, `broken ID REASON`, `try ID`.
    fn pass_on(&self, message: &str) {
        let mut words = message.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("granted"), Some(id), Some(token)) => {
                if let Ok(token) = token.parse() {
                    self.roll.granted(id, token);
                }
            }
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
