//! What a session's owner keeps beside the session, and how the session's driver serves it.
//!
//! A client library would stop at "send a request, get an answer". The owner of a session also has
//! state that must change in the same moment in which an event, an answer or the end of the
//! connection is processed, and requests of its own that nobody waits for. It implements
//! [`Observer`], and the session keeps the observer **under the session's own lock**: an observer
//! in a task of its own would cost a task switch for each event, and would see the session a
//! moment late.

use super::answers::{Answer, NodeEvent};
use super::error::Failure;
use super::pipeline::{Pipeline, Reply};
use super::requests::Request;
use crate::clock::Moment;

/// Something to call once the session's lock is released, because it may call back.
pub(crate) type Afterwards = Box<dyn FnOnce() + Send>;

/// State that lives under a session's lock, told by its driver of everything that happens.
///
/// Every method is called with the lock held, and must neither block nor call the session.
pub(crate) trait Observer: Default + Send + 'static {
    /// What a request of the observer's own was sent for. The client does not look into it.
    type Purpose: Send + 'static;

    /// When [`tick`](Self::tick) is to be called next.
    fn next_due(&self) -> Option<Moment>;

    /// Does what is due at `now`. Called while there is a connection.
    fn tick(&mut self, now: Moment, outgoing: &mut Outgoing<'_, Self::Purpose>);

    /// A watched node changed.
    fn event(&mut self, event: &NodeEvent, outgoing: &mut Outgoing<'_, Self::Purpose>);

    /// A request of the observer's own was answered.
    fn answered(
        &mut self,
        purpose: Self::Purpose,
        answer: Result<Answer, Failure>,
        outgoing: &mut Outgoing<'_, Self::Purpose>,
    ) -> Option<Afterwards>;

    /// The connection broke: watches are gone, and requests of the observer's own are forgotten
    /// without an answer.
    fn disconnected(&mut self) -> Vec<Afterwards>;

    /// The session is over, and with it every ephemeral node.
    fn ended(&mut self) -> Vec<Afterwards>;

    /// Whether the session may be closed, as far as the observer is concerned.
    fn is_idle(&self) -> bool;
}

/// Where an observer puts requests of its own. They leave when the driver sends next, in order
/// with those of everyone else.
pub(crate) struct Outgoing<'a, P>(pub(super) &'a mut Pipeline<P>);

impl<P> Outgoing<'_, P> {
    /// Sends a request whose answer comes back through [`Observer::answered`].
    pub(crate) fn ask(&mut self, request: Request, purpose: P) {
        self.0.put(request, Reply::Observer(purpose));
    }

    /// Sends a request whose answer is of no interest.
    pub(crate) fn tell(&mut self, request: Request) {
        self.0.put(request, Reply::Nobody);
    }
}
