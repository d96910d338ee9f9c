//! A client for ZooKeeper's protocol: one session, resumed when its connection breaks and opened
//! anew when it ends.
//!
//! It knows nodes, watches and sessions, and nothing of what they are used for. What must happen
//! in step with the session, its owner provides as an [`Observer`].
//!
//! ```text
//!   Client ──► Session ──► state ◄── driver ──► connection
//!     │           │          │                     │
//!     │       send, call   pipeline, watchers,   handshake
//!     │                    observer
//!     └ opens the session, and another when that one ended
//! ```
//!
//! | file | what |
//! |---|---|
//! | `session` | the handle: send requests, wait for answers, look at the observer |
//! | `state` | what the handle and the driver share, behind one lock |
//! | `driver`, `inbox` | the task that reads the socket, sends heartbeats and reconnects |
//! | `pipeline` | requests in flight, in order |
//! | `connection` | hosts, TCP, TLS, handshake, login |
//! | `requests`, `answers`, `jute` | the operations, their results, the encoding |
//! | `watchers`, `watch` | who is notified of which node |
//! | `observer` | the owner's state under the session's lock |
//! | `error` | why a request failed |
//!
//! Why not a crate: none of those there are tells which answers came through the leader, on which
//! it depends that a session is known to be alive, or leaves it to the caller when a request is
//! sent again.

mod answers;
mod connection;
mod driver;
mod error;
mod inbox;
mod jute;
mod observer;
mod pipeline;
mod requests;
mod session;
mod state;
mod watch;
mod watchers;

#[cfg(test)]
pub(crate) use answers::data_answer;
pub(crate) use answers::{Answer, NodeEvent};
pub(crate) use connection::ConnectOptions;
pub(crate) use error::{Failure, refusal};
pub(crate) use jute::Stat;
pub(crate) use observer::{Afterwards, Observer, Outgoing};
pub use requests::Access;
pub(crate) use requests::{NodeKind, Request};
pub(crate) use session::Session;
pub(crate) use watch::Watch;
pub(crate) use watchers::Change;

use crate::backend::support::reconnect::Reconnecting;
use crate::background::Background;
use crate::error::{Error, Result};
use connection::Connector;
use std::sync::Arc;

/// The one session that all users of a keeper share, opened anew when it ended.
#[derive(Debug)]
pub(crate) struct Client<O: Observer> {
    connector: Arc<Connector>,
    /// Where connections are made and drivers run.
    background: Background,
    current: Reconnecting<Arc<Session<O>>>,
}

impl<O: Observer> Client<O> {
    /// Connects to nothing yet.
    pub(crate) fn new(options: ConnectOptions, background: Background) -> Self {
        let connector = Arc::new(Connector::new(options));
        Self { connector, background, current: Reconnecting::default() }
    }

    /// The present session, or a new one if it is over. It may be without a connection.
    pub(crate) async fn session(&self) -> Result<Arc<Session<O>>> {
        let open = async || {
            let opened = self.background.settle(|| {
                let connector = self.connector.clone();
                async move { Session::open(&connector).await }
            });
            opened.await?.map(Arc::new).map_err(|failure| self.explain(&failure))
        };
        let (_, session) = self.current.get(|session| !session.is_over(), open).await?;
        Ok(session)
    }

    /// Closes the present session, its connection and its driver, unless its observer has need of
    /// them. A later [`session`](Self::session) opens another.
    pub(crate) async fn close(&self) {
        let current = self.current.current(|session| !session.is_over());
        if let Some((number, session)) = current.filter(|(_, session)| session.begin_close()) {
            // A caller that asks from now on gets another; a caller that just got this one keeps it
            // open until it is done.
            self.current.give_up(number);
            session.closed().await;
        }
    }

    pub(crate) fn options(&self) -> &ConnectOptions {
        &self.connector.options
    }

    pub(crate) fn explain(&self, failure: &Failure) -> Error {
        failure.explain(&self.connector.options.shown)
    }
}
