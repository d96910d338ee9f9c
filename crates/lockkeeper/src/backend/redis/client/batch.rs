//! Commands of many tasks, sent together.
//!
//! A task that sends a command wakes the connection's driver, which writes it at once: before the
//! next task, which may be ready too, gets to say what it wants. With many tasks that is a packet
//! and two system calls for every command. So while others are under way, a command waits until
//! everything that can run has run, and goes out together with what came up meanwhile. A command
//! that is alone never waits.
//!
//! Nobody depends on another's future being polled on: what waits is sent by the runtime itself,
//! on the first of the threads where one of them waits that has nothing else to do. And commands
//! arrive in the order in which they were sent: a withdrawal must not overtake what it withdraws,
//! also if nobody waits for that any more.

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

/// So many do not wait for more: the server works on them while the others are still to come.
const ENOUGH: usize = 8;

/// Longer than that none waits for a runtime that is busy elsewhere, while others go on.
const LONG: Duration = Duration::from_millis(1);

/// The commands of one connection.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// How many were sent, or are about to be, and are not answered.
    under_way: AtomicUsize,
    waiting: Mutex<Unsent>,
    /// Held while what waits is handed to the connection.
    in_order: Mutex<()>,
}

#[derive(Debug, Default)]
struct Unsent {
    commands: Vec<Arc<Mutex<Waiting>>>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// When several went out together last.
    crowded: Option<Instant>,
}

/// A command and whom to wake when it is answered.
struct Waiting {
    stage: Stage,
    waker: Waker,
    /// Where it is at home, which need not be where it is sent.
    runtime: Option<Handle>,
    _under_way: UnderWay,
}

enum Stage {
    /// Not sent; not polled even once.
    Ahead(RedisFuture<'static, Value>),
    Sent(RedisFuture<'static, Value>),
    Answered(RedisResult<Value>),
    /// The answer was taken.
    Over,
}

impl Batch {
    /// Sends a command over the connection that this batch is for. If dropped before the answer,
    /// it may have been sent or not; but it will not be sent after one that begins later.
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
        // Whatever task is running while this is sent, it is not at that task's expense: to yield
        // is not possible there.
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

    /// Has what waits sent as soon as the runtime finds nothing else to do. Everyone asks for that
    /// where it runs: another place may not be idle for a long time.
    fn send_when_idle(self: &Arc<Self>, mine: Arc<Mutex<Waiting>>) {
        let sender = Sender { batch: self.clone(), mine, done: AtomicBool::new(false) };
        let waker = Waker::from(Arc::new(sender));
        // Pending: the waker is kept until then.
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    }

    /// Hands what waits to the connection.
    fn send_all(&self) {
        let _in_order = lock(&self.in_order);
        let commands = lock(&self.waiting).take();
        for one in commands {
            lock(&one).begin();
        }
    }
}

impl Unsent {
    /// Whether they do not wait any longer.
    fn push(&mut self, command: Arc<Mutex<Waiting>>) -> bool {
        self.commands.push(command);
        let since = *self.since.get_or_insert_with(Instant::now);
        let count = self.commands.len();
        count >= ENOUGH || (count > 1 && since.elapsed() > LONG)
    }

    fn take(&mut self) -> Vec<Arc<Mutex<Waiting>>> {
        self.since = None;
        if self.commands.len() > 1 {
            self.crowded = Some(Instant::now());
        }
        std::mem::take(&mut self.commands)
    }

    fn is_crowded(&self) -> bool {
        !self.commands.is_empty() || self.crowded.is_some_and(|last| last.elapsed() < LONG)
    }
}

impl Waiting {
    /// Puts it in the connection's line.
    fn begin(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Ahead(ahead) => self.stage = Stage::Sent(ahead),
            given_up => {
                self.stage = given_up;
                return;
            }
        }
        // Its time limit is kept by its own runtime: this one may end before.
        let runtime = self.runtime.clone();
        let _at_home = runtime.as_ref().map(Handle::enter);
        let waker = self.waker.clone();
        if let Poll::Ready(answer) = self.poll(&mut Context::from_waker(&waker)) {
            self.answer(answer);
        }
    }

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
            // To poll it would be to send it, ahead of others who were first.
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

/// Woken by the runtime when it is idle: then sends what waits.
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
        // The runtime ended first: whoever waits for it is told.
        if !*self.done.get_mut() {
            lock(&self.mine).give_up();
        }
    }
}

/// Counts one that is not done.
#[derive(Debug)]
struct UnderWay(Arc<Batch>);

impl UnderWay {
    /// And how many there were already.
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
fn cut_off() -> RedisError {
    RedisError::from((Cause::Io, "the connection's runtime has ended"))
}

#[cfg(test)]
mod tests;
