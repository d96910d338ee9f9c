//! One connection, shared by all tasks of a keeper.
//!
//! A caller puts its request behind those of others and writes it to the socket itself, or leaves it
//! to the task when many are under way, which writes them together. The task reads the answers and
//! hands each to the caller whose turn it is.
//!
//! ```text
//!   callers ── send ──► [ slot slot slot ] ◄── reader ── socket
//!                          │ in order            an answer belongs to the first slot, and must
//!                          ▼                     carry its number
//!                        socket
//! ```
//!
//! Anything that does not fit ends the connection, and everyone who waits on it is told that it
//! broke. A caller that went away leaves its slot, so that its answer is read and dropped. So an
//! answer that comes late is never taken for that of the next request.

use crate::backend::memcached::error::Failure;
use crate::backend::memcached::protocol::{Reply, Request, parse};
use crate::backend::support::sync::lock;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How much is read at once.
const CHUNK: usize = 16 << 10;

/// With so many requests under way the task writes, for all who come until its turn: one system call
/// for many requests. With fewer, to wake a task would take longer than to write.
const CROWD: usize = 4;

/// The sending half of a socket.
pub(super) enum Writer {
    /// Plain TCP, to which any thread writes directly: no task need be woken to send a request.
    Direct(OwnedWriteHalf),
    /// TLS, which has state of its own: only the task writes.
    Driven(Box<dyn AsyncWrite + Send + Unpin>),
}

/// The callers' end of a connection. It is closed when the last clone goes.
#[derive(Clone)]
pub(super) struct Link {
    inner: Arc<Inner>,
    _open: Arc<DropGuard>,
}

struct Inner {
    state: Mutex<State>,
    /// For plain TCP.
    direct: Option<OwnedWriteHalf>,
    /// There is something for the task to write.
    to_write: Notify,
    closed: CancellationToken,
    /// Set under the lock of `state`, and looked at without it too.
    is_over: AtomicBool,
    next: AtomicU32,
}

#[derive(Default)]
struct State {
    slots: VecDeque<Slot>,
    /// What is to be written behind what is being written.
    outgoing: Vec<u8>,
    /// Somebody is writing, without the lock.
    is_writing: bool,
}

/// One request that waits for its answer.
struct Slot {
    number: Option<u32>,
    answer: oneshot::Sender<Reply>,
}

/// An answer to come.
pub(super) struct Answer(oneshot::Receiver<Reply>);

impl Answer {
    /// # Errors
    /// [`Failure::Broken`] when the connection ends first.
    pub(super) async fn wait(self) -> Result<Reply, Failure> {
        self.0.await.map_err(|_| Failure::Broken)
    }
}

impl Link {
    /// Starts the task of a connection, on the runtime of the caller. `over` is called when the
    /// connection ended by itself.
    pub(super) fn start(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: Writer,
        over: impl FnOnce() + Send + 'static,
    ) -> Self {
        let closed = CancellationToken::new();
        let (direct, driven) = match writer {
            Writer::Direct(half) => (Some(half), None),
            Writer::Driven(half) => (None, Some(half)),
        };
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            direct,
            to_write: Notify::new(),
            closed: closed.clone(),
            is_over: AtomicBool::new(false),
            next: AtomicU32::new(1),
        });
        let ends = Ends(inner.clone());
        tokio::spawn(async move {
            let inner = &ends.0;
            let why = tokio::select! {
                () = inner.closed.cancelled() => return,
                why = read(inner, reader) => why,
                why = write(inner, driven) => why,
            };
            tracing::debug!(why, "a connection to memcached broke");
            drop(ends);
            over();
        });
        Self { inner, _open: Arc::new(closed.drop_guard()) }
    }

    /// A number for the next request.
    pub(super) fn number(&self) -> u32 {
        self.inner.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends requests, one behind the other with nothing between them.
    ///
    /// # Errors
    /// [`Failure::Broken`] when the connection is over; nothing was sent then.
    pub(super) fn send<const N: usize>(
        &self,
        requests: [Request; N],
    ) -> Result<[Answer; N], Failure> {
        let mut state = lock(&self.inner.state);
        if !self.is_open() {
            return Err(Failure::Broken);
        }
        let is_crowded = state.slots.len() >= CROWD;
        let answers = requests.map(|Request { bytes, number }| {
            let (answer, answered) = oneshot::channel();
            state.slots.push_back(Slot { number, answer });
            match state.outgoing.is_empty() {
                true => state.outgoing = bytes,
                false => state.outgoing.extend(bytes),
            }
            Answer(answered)
        });
        match is_crowded {
            true => self.inner.to_write.notify_one(),
            false => self.inner.write_now(state),
        }
        Ok(answers)
    }

    /// Whether it can still be used.
    pub(super) fn is_open(&self) -> bool {
        !self.inner.is_over.load(Ordering::Acquire)
    }

    /// Ends it; those who wait are told that it broke.
    pub(super) fn close(&self) {
        self.inner.closed.cancel();
        self.inner.end();
    }
}

impl Inner {
    /// Writes what the socket takes at once, and leaves the rest to the task.
    ///
    /// One caller writes, without the lock, for all who put a request behind its own meanwhile: they
    /// need not wait for the socket, and several requests leave together.
    fn write_now<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        while let Some(direct) = &self.direct {
            if state.is_writing || state.outgoing.is_empty() {
                return;
            }
            state.is_writing = true;
            let mut bytes = std::mem::take(&mut state.outgoing);
            drop(state);
            let written = direct.try_write(&bytes);
            state = lock(&self.state);
            state.is_writing = false;
            let rest = match written {
                Ok(written) => bytes.split_off(written),
                Err(_) => bytes,
            };
            if rest.is_empty() {
                continue;
            }
            let behind = std::mem::replace(&mut state.outgoing, rest);
            state.outgoing.extend(behind);
            match written {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Full, or broken: the task waits for the one and finds out about the other.
                Err(_) => break,
            }
        }
        if !state.outgoing.is_empty() {
            self.to_write.notify_one();
        }
    }

    /// Hands an answer to the first slot; `false` if it is not that one's.
    fn answered(&self, reply: Reply) -> bool {
        let slot = lock(&self.state).slots.pop_front();
        match slot {
            Some(slot) if reply.answers(slot.number) => {
                // After this the server may take the rest for other commands than we do.
                let in_step = !matches!(reply, Reply::Misunderstood(_));
                // Nobody waits for it any more: then it is dropped here.
                let _ = slot.answer.send(reply);
                in_step
            }
            _ => false,
        }
    }

    /// Tells all who wait that there will be no answer.
    fn end(&self) {
        let slots = {
            let mut state = lock(&self.state);
            self.is_over.store(true, Ordering::Release);
            state.outgoing = Vec::new();
            std::mem::take(&mut state.slots)
        };
        drop(slots);
    }
}

/// Ends the connection with its task, also when the task's runtime ends.
struct Ends(Arc<Inner>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Reads answers until there is none that makes sense; returns why.
async fn read(inner: &Inner, mut reader: impl AsyncRead + Unpin) -> String {
    let mut inbox = Vec::with_capacity(CHUNK);
    loop {
        match reader.read_buf(&mut inbox).await {
            Ok(0) => return "the server hung up".to_owned(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
        let mut at = 0;
        loop {
            match parse(&inbox[at..]) {
                Ok(None) => break,
                Ok(Some((reply, length))) => {
                    at += length;
                    if !inner.answered(reply) {
                        return "an answer that nobody waits for".to_owned();
                    }
                }
                Err(nonsense) => return format!("{nonsense:?}"),
            }
        }
        inbox.drain(..at);
    }
}

/// Writes what callers could not; returns why it stopped.
async fn write(inner: &Inner, mut driven: Option<Box<dyn AsyncWrite + Send + Unpin>>) -> String {
    loop {
        inner.to_write.notified().await;
        let done = match (&inner.direct, &mut driven) {
            (Some(direct), _) => {
                // Others that the last answers woke have their turn first, and write together.
                tokio::task::yield_now().await;
                let writable = direct.writable().await;
                inner.write_now(lock(&inner.state));
                writable
            }
            (None, Some(driven)) => {
                let outgoing = std::mem::take(&mut lock(&inner.state).outgoing);
                let written = driven.write_all(&outgoing).await;
                match written {
                    Ok(()) => driven.flush().await,
                    error => error,
                }
            }
            (None, None) => return "there is nothing to write to".to_owned(),
        };
        if let Err(error) = done {
            return error.to_string();
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
