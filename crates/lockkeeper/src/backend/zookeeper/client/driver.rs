//! The task of a session: reads answers and events, sends heartbeats, reconnects, and has the
//! observer do what is due.
//!
//! There is one driver in charge at a time. It runs on the runtime of the caller that started it,
//! next to the requests it serves; when that runtime ends, the driver is dropped with it and the
//! next caller starts another ([`Session::connected_within`](super::session::Session)). A driver
//! that has been replaced notices that the number in the state is not its own, and stops.
//!
//! One turn of [`serve`](Driver::serve): do what is due, send what callers could not send themselves,
//! then wait for whatever comes first: bytes from the server, a caller with something to do, or the
//! moment at which something is due again.
//!
//! A server that is silent for longer than a request may take has lost its connection, even if TCP does
//! not say so yet: [`tick`](Driver::tick) gives the connection up, and the loop in
//! [`run`](Driver::run) makes another.

use super::answers::{Answer, NodeEvent};
use super::connection::{Connection, Writer};
use super::error::Failure;
use super::inbox::Inbox;
use super::jute::Reader;
use super::observer::Observer;
use super::pipeline::Reply;
use super::requests::{EVENT, Request};
use super::state::{Inner, Phase, State, run};
use crate::clock::Moment;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Heartbeats per session timeout. See [`Session::certain_for`](super::session::Session).
const HEARTBEATS: u32 = 6;
/// The first pause between two attempts to connect; it doubles from there.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Puts a new driver in charge, on the runtime of the caller.
pub(super) fn start<O: Observer>(
    inner: &Arc<Inner<O>>,
    state: &mut State<O>,
    connection: Option<Connection>,
) {
    // A caller without a runtime cannot wait for an answer either.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let driver = Driver { inner: inner.clone(), number: state.next_driver() };
    if let Some(connection) = &connection {
        state.pipeline.connect(&connection.writer);
        inner.set_phase(Phase::Connected);
    }
    runtime.spawn(driver.run(connection));
}

/// One driver. Its number tells it from those before and after it.
struct Driver<O: Observer> {
    inner: Arc<Inner<O>>,
    number: u64,
}

/// Why a driver is done with a connection that works.
enum Done {
    /// The session was closed.
    Closed,
    /// Another driver is in charge.
    Replaced,
}

impl<O: Observer> Driver<O> {
    /// Serves one connection after another until the session is over or another driver is in charge.
    async fn run(self, mut connection: Option<Connection>) {
        loop {
            let mut current = match connection.take() {
                Some(connection) => connection,
                None => match self.reconnect().await {
                    Some(connection) => connection,
                    None => return,
                },
            };
            match self.serve(&mut current).await {
                Ok(Done::Closed) => return self.inner.ended(),
                Ok(Done::Replaced) => return,
                Err(error) => {
                    let session = self.inner.key.id;
                    tracing::debug!(session, %error, "the connection to ZooKeeper broke");
                    // A server whose connection broke may be going down, or be cut off from the rest.
                    self.inner.connector.skip_server();
                    let mut state = self.inner.state();
                    if !self.is_in_charge(&state) {
                        return;
                    }
                    let afterwards = self.inner.disconnected(&mut state);
                    drop(state);
                    run(afterwards);
                }
            }
        }
    }

    /// Whether no other driver was started since. Asked under the lock, before anything is changed.
    fn is_in_charge(&self, state: &State<O>) -> bool {
        state.driver == self.number
    }

    /// Connects again; `None` when the session is over or another driver is in charge.
    ///
    /// It goes on for as long as the session is needed, since the server may keep the session for
    /// longer than its timeout: while there is no leader, no session ends.
    async fn reconnect(&self) -> Option<Connection> {
        let (inner, begin) = (&self.inner, Moment::now());
        let options = &inner.connector.options;
        let (mut pause, mut tries) = (FIRST_PAUSE, 0);
        loop {
            let last_seen = {
                let state = inner.state();
                if !self.is_in_charge(&state) {
                    return None;
                }
                let expired = Moment::now().since(begin) > inner.key.timeout;
                // Nobody needs the session any more: the server ends it at its timeout.
                if state.closing && (expired || state.observer.is_idle()) {
                    drop(state);
                    inner.ended();
                    return None;
                }
                state.last_seen
            };
            match inner.connector.connect(&inner.key, last_seen).await {
                Ok((connection, _)) => {
                    let mut state = inner.state();
                    if !self.is_in_charge(&state) {
                        return None;
                    }
                    state.pipeline.connect(&connection.writer);
                    inner.set_phase(Phase::Connected);
                    return Some(connection);
                }
                Err(Failure::Unanswered(why)) => {
                    tracing::debug!(%why, "ZooKeeper cannot be reached");
                    tries += 1;
                }
                Err(failure) => {
                    tracing::debug!(?failure, "the session with ZooKeeper is over");
                    inner.ended();
                    return None;
                }
            }
            if options.tries > 0 && tries >= options.tries {
                inner.ended();
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(options.backoff);
        }
    }

    /// Serves one connection until it breaks.
    async fn serve(&self, connection: &mut Connection) -> io::Result<Done> {
        let mut inbox = Inbox::default();
        loop {
            let (done, next) = self.tick()?;
            self.flush(&mut connection.writer).await?;
            if let Some(done) = done {
                return Ok(done);
            }
            tokio::select! {
                biased;
                // Answers first: they may make the other two pointless.
                read = connection.reader.read_buf(inbox.buffer()) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    while let Some(packet) = inbox.next()? {
                        self.receive(packet)?;
                    }
                    inbox.discard_read();
                }
                () = self.inner.wake.notified() => {}
                () = next.reached() => {}
            }
        }
    }

    /// Does what is due; returns when something will be.
    ///
    /// # Errors
    /// When the server has not answered in time: the connection is given up.
    fn tick(&self) -> io::Result<(Option<Done>, Moment)> {
        let (now, inner) = (Moment::now(), &self.inner);
        let mut state = inner.state();
        if !self.is_in_charge(&state) {
            return Ok((Some(Done::Replaced), now));
        }
        let timeout = inner.connector.options.timeout;
        // Answers come in order, so the oldest request stands for all of them.
        let silent = state.pipeline.oldest().map(|sent| sent + timeout);
        if silent.is_some_and(|end| end <= now) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (observer, mut outgoing) = state.observer();
        observer.tick(now, &mut outgoing);
        let done = (state.closing && state.observer.is_idle()).then(|| {
            state.pipeline.put(Request::close(), Reply::Nobody);
            Done::Closed
        });
        // Any request shows the server that the session is alive, so a heartbeat is needed only
        // after a pause.
        let heartbeat = inner.key.timeout / HEARTBEATS;
        if state.pipeline.last_sent().is_none_or(|sent| sent + heartbeat <= now) {
            state.pipeline.ping();
        }
        state.pipeline.push()?;
        let alive = state.pipeline.last_sent().unwrap_or(now) + heartbeat;
        // A wake-up that is planned stays planned, even if its cause is gone by now. Moving it
        // back and forth with every short-lived entry of the observer would cost a wake-up each.
        let planned = state.planned.filter(|planned| *planned > now);
        let next = [silent, planned, state.observer.next_due()];
        let next = next.into_iter().flatten().fold(alive, Moment::min);
        state.planned = Some(next);
        Ok((done, next))
    }

    /// Writes what callers could not write themselves.
    async fn flush(&self, writer: &mut Writer) -> io::Result<()> {
        match writer {
            Writer::Direct(writer) => {
                while self.has_more()? {
                    writer.writable().await?;
                }
            }
            // Taken out under the lock and written outside of it: the write may have to wait.
            Writer::Driven(writer) => {
                let outgoing = self.inner.state().pipeline.take_outgoing();
                if !outgoing.is_empty() {
                    writer.write_all(&outgoing).await?;
                    writer.flush().await?;
                }
            }
        }
        Ok(())
    }

    /// Whether there is more to send than the socket takes at the moment.
    fn has_more(&self) -> io::Result<bool> {
        let mut state = self.inner.state();
        Ok(self.is_in_charge(&state) && !state.pipeline.push()?)
    }

    /// Processes one packet from the server: an event, the answer to a heartbeat, or the answer to
    /// the oldest request in flight.
    fn receive(&self, packet: &[u8]) -> io::Result<()> {
        let mut reader = Reader(packet);
        let header = (reader.int(), reader.long(), reader.int());
        // Without a header nothing can be said about the bytes that follow either.
        let (Some(xid), Some(zxid), Some(code)) = header else {
            return Err(io::Error::other("an answer without a header"));
        };
        let mut state = self.inner.state();
        if !self.is_in_charge(&state) {
            return Ok(());
        }
        if xid == EVENT {
            if let Some(event) = NodeEvent::read(reader) {
                state.watchers.notify(&event.path, event.change);
                let (observer, mut outgoing) = state.observer();
                observer.event(&event, &mut outgoing);
                self.inner.push(&mut state);
            }
            return Ok(());
        }
        // An event carries no transaction number; every answer does.
        state.last_seen = state.last_seen.max(zxid);
        if xid < 0 {
            state.pipeline.pong();
            return Ok(());
        }
        let (reply, sent) = state.pipeline.answered(xid)?;
        // Only a success proves that the leader knows the session: a follower refuses some requests
        // by itself.
        if code == 0 {
            state.leader_answered = state.leader_answered.max(sent);
        }
        let answer = match code {
            0 => Ok(Answer(reader.0.to_vec())),
            code => Err(Failure::of(code)),
        };
        let ended = matches!(answer, Err(Failure::SessionEnded));
        match reply {
            Reply::Caller(caller) => {
                // First unlocked: the caller runs on at once, and would have to wait.
                drop(state);
                // The caller may have left.
                let _ = caller.send(answer);
            }
            Reply::Observer(purpose) => {
                let (observer, mut outgoing) = state.observer();
                let afterwards = observer.answered(purpose, answer, &mut outgoing);
                self.inner.push(&mut state);
                drop(state);
                run(afterwards);
            }
            Reply::Nobody => drop(state),
        }
        if ended {
            self.inner.ended();
        }
        Ok(())
    }
}

/// The runtime may end under the driver; the next caller that needs the session starts another one.
impl<O: Observer> Drop for Driver<O> {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        if self.is_in_charge(&state) {
            state.driver = 0;
            let afterwards = self.inner.disconnected(&mut state);
            drop(state);
            run(afterwards);
        }
    }
}
