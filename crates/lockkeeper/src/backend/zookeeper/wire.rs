//! What is on its way to the server, and which answers are on their way back.

use super::request::{Answer, Request};
use super::route::Writer;
use super::trouble::Fault;
use crate::backend::{ClaimId, Moment};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot;

/// What is to become of an answer.
#[derive(Debug)]
pub(super) enum Then {
    Tell(oneshot::Sender<Result<Answer, Fault>>),
    /// The node of a claim that is held was looked at.
    Watched(ClaimId),
    /// The node of a claim is gone; its parent was asked why.
    Explained(ClaimId),
    /// Children were listed, to find the node of a claim.
    Found(ClaimId),
    /// The parent of the only node there can be was looked at.
    Sealed(ClaimId),
    /// And the node itself, to see whose it is.
    Identified(ClaimId),
    /// The node of a claim was deleted.
    Deleted(ClaimId),
    Ignore,
}

impl From<oneshot::Sender<Result<Answer, Fault>>> for Then {
    fn from(tell: oneshot::Sender<Result<Answer, Fault>>) -> Self {
        Self::Tell(tell)
    }
}

/// A request that is not answered yet.
struct Pending {
    number: i32,
    sent: Moment,
    reaches_leader: bool,
    then: Then,
}

/// One direction and the other of a connection, or of none.
#[derive(Default)]
pub(super) struct Wire {
    /// Whether there is a connection.
    up: bool,
    direct: Option<Arc<OwnedWriteHalf>>,
    outgoing: Vec<u8>,
    /// Answers come in the order of the requests.
    pending: VecDeque<Pending>,
    last_number: i32,
    last_sent: Option<Moment>,
    pinged: Option<Moment>,
}

impl Wire {
    /// A new connection. What is put on the wire before it is, is not sent.
    pub(super) fn connect(&mut self, writer: &Writer) {
        self.up = true;
        self.direct = match writer {
            Writer::Direct(writer) => Some(writer.clone()),
            Writer::Driven(_) => None,
        };
        self.last_sent = Some(Moment::now());
        self.pinged = None;
    }

    /// Puts a request on the wire; sent with the next [`push`](Self::push).
    pub(super) fn put(&mut self, request: Request, then: impl Into<Then>) {
        let then = then.into();
        if !self.up {
            if let Then::Tell(tell) = then {
                // Whoever asked may be gone.
                let _ = tell.send(Err(Fault::Unanswered("there is no connection".into())));
            }
            return;
        }
        self.last_number = self.last_number.wrapping_add(1).max(1);
        let (number, sent, reaches_leader) =
            (self.last_number, Moment::now(), request.reaches_leader());
        self.outgoing.extend(request.numbered(number));
        self.pending.push_back(Pending { number, sent, reaches_leader, then });
    }

    /// Puts a sign of life on the wire.
    pub(super) fn ping(&mut self) {
        if self.up {
            self.outgoing.extend(Request::ping());
            self.pinged.get_or_insert(Moment::now());
        }
    }

    pub(super) fn ponged(&mut self) {
        self.pinged = None;
    }

    /// Sends as much as can be sent without waiting; `false` when the driver must do the rest.
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

    /// What the driver has to send itself.
    pub(super) fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// What the next answer is for, and when what it answers was sent to the leader, if it was.
    pub(super) fn answered(&mut self, number: i32) -> io::Result<(Then, Option<Moment>)> {
        match self.pending.pop_front() {
            Some(asked) if asked.number == number => {
                Ok((asked.then, asked.reaches_leader.then_some(asked.sent)))
            }
            _ => Err(io::Error::other("an answer out of turn")),
        }
    }

    /// When the longest unanswered request was sent.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let asked = self.pending.front().map(|asked| asked.sent);
        asked.into_iter().chain(self.pinged).min()
    }

    pub(super) fn last_sent(&self) -> Option<Moment> {
        self.last_sent
    }

    /// The connection is no more: nothing on it will be answered.
    pub(super) fn cut(&mut self, fault: &Fault) {
        self.up = false;
        self.direct = None;
        self.outgoing.clear();
        self.pinged = None;
        for asked in std::mem::take(&mut self.pending) {
            if let Then::Tell(tell) = asked.then {
                let _ = tell.send(Err(fault.clone()));
            }
        }
    }
}
