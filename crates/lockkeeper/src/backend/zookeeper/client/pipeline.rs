//! Requests that are on their way to the server, and the answers that are awaited.
//!
//! ZooKeeper answers the requests of one connection in their order. So any number of them can be
//! in flight, and the first in the queue is always the one that the next answer belongs to.

use super::answers::Answer;
use super::connection::Writer;
use super::error::Failure;
use super::requests::Request;
use crate::clock::Moment;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot;

/// Where an answer goes.
#[derive(Debug)]
pub(super) enum Reply<P> {
    /// To the caller that awaits it.
    Caller(oneshot::Sender<Result<Answer, Failure>>),
    /// To the session's observer, with what it asked for.
    Observer(P),
    Nobody,
}

/// A request that is not answered yet.
struct Pending<P> {
    xid: i32,
    sent: Moment,
    /// Whether an answer proves that the leader knows the session.
    reaches_leader: bool,
    reply: Reply<P>,
}

/// Both directions of the present connection, or of none.
pub(super) struct Pipeline<P> {
    connected: bool,
    /// The socket, where any thread may write to it; `None` where only the driver may.
    direct: Option<Arc<OwnedWriteHalf>>,
    /// Encoded requests that are not written to the socket yet.
    outgoing: Vec<u8>,
    pending: VecDeque<Pending<P>>,
    last_xid: i32,
    /// When anything was sent last, for the heartbeat.
    last_sent: Option<Moment>,
    /// When the oldest heartbeat without an answer was sent.
    pinged: Option<Moment>,
}

impl<P> Pipeline<P> {
    /// Starts over on a new connection. Requests put here before there is one are not sent.
    pub(super) fn connect(&mut self, writer: &Writer) {
        self.connected = true;
        self.direct = match writer {
            Writer::Direct(writer) => Some(writer.clone()),
            Writer::Driven(_) => None,
        };
        self.last_sent = Some(Moment::now());
        self.pinged = None;
    }

    /// Queues a request; [`push`](Self::push) sends it. Without a connection its caller is told
    /// so at once.
    pub(super) fn put(&mut self, request: Request, reply: Reply<P>) {
        if !self.connected {
            if let Reply::Caller(caller) = reply {
                // The caller may have left.
                let _ = caller.send(Err(Failure::Unanswered("there is no connection".into())));
            }
            return;
        }
        // Never negative: the protocol uses negative numbers for events, heartbeats and logins.
        self.last_xid = self.last_xid.wrapping_add(1).max(1);
        let (xid, sent, reaches_leader) = (self.last_xid, Moment::now(), request.reaches_leader());
        self.outgoing.extend(request.numbered(xid));
        self.pending.push_back(Pending { xid, sent, reaches_leader, reply });
    }

    /// Queues a heartbeat.
    pub(super) fn ping(&mut self) {
        if self.connected {
            self.outgoing.extend(Request::ping());
            self.pinged.get_or_insert(Moment::now());
        }
    }

    /// The server answered a heartbeat.
    pub(super) fn pong(&mut self) {
        self.pinged = None;
    }

    /// Sends as much as can be sent without waiting; `false` when the driver must do the rest.
    ///
    /// This is called by whichever thread has something to send. Leaving it to the driver would
    /// cost a task switch for each request.
    pub(super) fn push(&mut self) -> io::Result<bool> {
        if self.outgoing.is_empty() {
            return Ok(true);
        }
        self.last_sent = Some(Moment::now());
        let Some(writer) = &self.direct else { return Ok(false) };
        while !self.outgoing.is_empty() {
            match writer.try_write(&self.outgoing) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes what the driver has to write itself.
    pub(super) fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Where the answer with this number goes, and when its request was sent, if that reached the
    /// leader.
    ///
    /// # Errors
    /// When it is not the answer whose turn it is: the connection cannot be trusted any further.
    pub(super) fn answered(&mut self, xid: i32) -> io::Result<(Reply<P>, Option<Moment>)> {
        match self.pending.pop_front() {
            Some(asked) if asked.xid == xid => {
                Ok((asked.reply, asked.reaches_leader.then_some(asked.sent)))
            }
            _ => Err(io::Error::other("an answer out of turn")),
        }
    }

    /// When the oldest unanswered request or heartbeat was sent.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let asked = self.pending.front().map(|asked| asked.sent);
        asked.into_iter().chain(self.pinged).min()
    }

    pub(super) fn last_sent(&self) -> Option<Moment> {
        self.last_sent
    }

    /// The connection is gone: nothing on it will be answered, and nothing queued is sent. A
    /// request that arrived after its caller was told of the failure could undo what the caller
    /// did since.
    pub(super) fn disconnect(&mut self, failure: &Failure) {
        self.connected = false;
        self.direct = None;
        self.outgoing.clear();
        self.pinged = None;
        for asked in std::mem::take(&mut self.pending) {
            if let Reply::Caller(caller) = asked.reply {
                let _ = caller.send(Err(failure.clone()));
            }
        }
    }
}

/// Not derived, which would ask the same of `P`.
impl<P> Default for Pipeline<P> {
    fn default() -> Self {
        Self {
            connected: false,
            direct: None,
            outgoing: Vec::new(),
            pending: VecDeque::new(),
            last_xid: 0,
            last_sent: None,
            pinged: None,
        }
    }
}
