//! Commands of many tasks, sent together.
//!
//! A task that sends a command wakes the connection's driver, which writes it at once: before the
//! next task, which may be ready too, gets to send its own. With many tasks that is a packet and two
//! system calls for every command. So while other commands are under way, a command waits until the
//! runtime has nothing else to run, and goes out together with those that came up meanwhile.
//!
//! ```text
//!   task 1   send(a) ─────────────────────────► driver writes a          alone: at once
//!   task 2   send(b) ──┐ Unsent [b]                                      a is under way: wait
//!   task 3   send(c) ──┤ Unsent [b c]
//!                      └─ runtime idle ───────► driver writes b c        one packet
//! ```
//!
//! What it promises:
//!
//! - A command that is alone never waits. None waits longer than [`LONG`] while others are sent, and
//!   [`ENOUGH`] commands do not wait for more.
//! - Commands arrive in the order in which they were sent: a withdrawal must not overtake what it
//!   withdraws, also if nobody waits for that any more.
//! - No task depends on another's future being polled. What waits is sent by the runtime itself, by
//!   the first worker thread with a waiting command that becomes idle.
//!
//! How "the runtime is idle" is noticed: tokio keeps the wakers of `yield_now` until a worker has
//! nothing else to run. A waker of our own is handed to it that way, and sends what waits when it is
//! woken. Tokio does not promise this. Should it wake such wakers sooner, less is batched and nothing
//! breaks; should it drop them, [`Sender::drop`] fails the commands instead of leaving them hanging.
//! `tests.rs` fails in both cases.

use crate::backend::support::sync::lock;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind as Cause, RedisError, RedisFuture, RedisResult, Value};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

/// This many commands do not wait for more: the server works on them while others still come.
const ENOUGH: usize = 8;

/// No command waits longer than that for a runtime that is busy elsewhere, while others are sent.
const LONG: Duration = Duration::from_millis(1);

/// The commands of one connection.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// How many commands were sent, or are about to be, and are not answered.
    under_way: AtomicUsize,
    waiting: Mutex<Unsent>,
    /// Held while commands are handed to the connection, so that two senders do not mix theirs.
    in_order: Mutex<()>,
}

/// The commands that wait to be sent.
#[derive(Debug, Default)]
struct Unsent {
    commands: Vec<Arc<Mutex<Waiting>>>,
    /// Since when the first of them waits; `None` when none does.
    since: Option<Instant>,
    /// When several went out together last: a sign that more are about to come.
    crowded: Option<Instant>,
}

/// A command and the task to wake when it is answered.
struct Waiting {
    stage: Stage,
    waker: Waker,
    /// The runtime of the task that wants the answer, which need not be the one that sends it.
    runtime: Option<Handle>,
    _under_way: UnderWay,
}

/// How far a command is.
enum Stage {
    /// Not sent. The future has not been polled: the first poll is what sends it.
    Ahead(RedisFuture<'static, Value>),
    Sent(RedisFuture<'static, Value>),
    Answered(RedisResult<Value>),
    /// The answer was taken.
    Over,
}

impl Batch {
    /// Sends a command over the connection that this batch is for, at once if it is alone. If dropped
    /// before the answer, it may have been sent or not; but it will not be sent after one that begins
    /// later.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut connection: MultiplexedConnection,
        command: Cmd,
    ) -> RedisResult<Value> {
        let (under_way, others) = UnderWay::begin(self);
        if others == 0 && !lock(&self.waiting).is_crowded() {
            return connection.req_packed_command(&command).await;
        }
        let ahead = async move { connection.req_packed_command(&command).await };
        // Polled outside its own task, so it must not consume that task's coop budget: with an empty
        // budget the poll would return without having sent anything.
        let stage = Stage::Ahead(Box::pin(unconstrained(ahead)));
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let runtime = Handle::try_current().ok();
        let waiting = Waiting { stage, waker, runtime, _under_way: under_way };
        let mine = Arc::new(Mutex::new(waiting));
        if lock(&self.waiting).push(mine.clone()) {
            self.send_all();
        } else {
            self.send_when_idle(mine.clone());
        }
        poll_fn(|context| lock(&mine).poll(context)).await
    }

    /// Has what waits sent as soon as the runtime finds nothing else to run. Every waiting command asks
    /// for that on its own thread: another thread may be busy for a long time.
    fn send_when_idle(self: &Arc<Self>, mine: Arc<Mutex<Waiting>>) {
        let sender = Sender { batch: self.clone(), mine, done: AtomicBool::new(false) };
        let waker = Waker::from(Arc::new(sender));
        // The one use of what tokio does not promise; see the module's documentation. Always
        // pending: tokio keeps the waker until this thread is idle. The future itself can go.
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    }

    /// Hands everything that waits to the connection, in order.
    fn send_all(&self) {
        let _in_order = lock(&self.in_order);
        let commands = lock(&self.waiting).take();
        for one in commands {
            lock(&one).begin();
        }
    }
}

impl Unsent {
    /// Adds a command; whether the commands have waited enough, or are enough.
    fn push(&mut self, command: Arc<Mutex<Waiting>>) -> bool {
        self.commands.push(command);
        let since = *self.since.get_or_insert_with(Instant::now);
        let count = self.commands.len();
        count >= ENOUGH || (count > 1 && since.elapsed() > LONG)
    }

    /// Empties the list.
    fn take(&mut self) -> Vec<Arc<Mutex<Waiting>>> {
        self.since = None;
        if self.commands.len() > 1 {
            self.crowded = Some(Instant::now());
        }
        std::mem::take(&mut self.commands)
    }

    /// Whether a command that finds nothing under way should wait all the same: it would overtake
    /// those that wait, or be the first of several again.
    fn is_crowded(&self) -> bool {
        !self.commands.is_empty() || self.crowded.is_some_and(|last| last.elapsed() < LONG)
    }
}

impl Waiting {
    /// Sends it, by the first poll of its future: that hands the command to the connection's driver.
    fn begin(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Ahead(ahead) => self.stage = Stage::Sent(ahead),
            given_up => {
                self.stage = given_up;
                return;
            }
        }
        // Within its own runtime, which keeps its time limit: the one that runs this may end first.
        let runtime = self.runtime.clone();
        let _at_home = runtime.as_ref().map(Handle::enter);
        let waker = self.waker.clone();
        if let Poll::Ready(answer) = self.poll(&mut Context::from_waker(&waker)) {
            self.answer(answer);
        }
    }

    /// Fails it if it was not sent.
    fn give_up(&mut self) {
        if matches!(self.stage, Stage::Ahead(_)) {
            self.answer(Err(cut_off()));
        }
    }

    fn answer(&mut self, answer: RedisResult<Value>) {
        self.stage = Stage::Answered(answer);
        self.waker.wake_by_ref();
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<RedisResult<Value>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            // To poll the future would send it, ahead of commands that came before.
            Stage::Ahead(ahead) => {
                self.stage = Stage::Ahead(ahead);
                self.waker.clone_from(context.waker());
                Poll::Pending
            }
            Stage::Sent(mut sent) => {
                let answer = sent.as_mut().poll(context);
                if answer.is_pending() {
                    self.stage = Stage::Sent(sent);
                }
                answer
            }
            Stage::Answered(answer) => Poll::Ready(answer),
            Stage::Over => Poll::Ready(Err(cut_off())),
        }
    }
}

/// A waker that the runtime wakes when it is idle; sends what waits.
struct Sender {
    batch: Arc<Batch>,
    mine: Arc<Mutex<Waiting>>,
    done: AtomicBool,
}

impl Wake for Sender {
    fn wake(self: Arc<Self>) {
        if !self.done.swap(true, Ordering::AcqRel) {
            self.batch.send_all();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The runtime ended first: the task that waits for the answer gets an error.
        if !*self.done.get_mut() {
            lock(&self.mine).give_up();
        }
    }
}

/// Counts a command that is not answered, until dropped.
#[derive(Debug)]
struct UnderWay(Arc<Batch>);

impl UnderWay {
    /// Begins to count; and how many there were already.
    fn begin(batch: &Arc<Batch>) -> (Self, usize) {
        let others = batch.under_way.fetch_add(1, Ordering::AcqRel);
        (Self(batch.clone()), others)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

/// The task that was to send it ended with its runtime.
pub(super) fn cut_off() -> RedisError {
    RedisError::from((Cause::Io, "the connection's runtime has ended"))
}

#[cfg(test)]
mod tests;
