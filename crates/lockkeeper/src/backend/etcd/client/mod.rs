//! The connection that everything of a keeper goes through, made again when it broke.
//!
//! There is one connection, to one member. HTTP/2 carries any number of requests at once, so more
//! would only cost more; and whether a watch is live can be told only on the connection that a
//! read was confirmed on. When a connection breaks or its member is of no use, the next request
//! connects to the next member, once for all callers that wait.
//!
//! Every connection has a number. Requests say on which one they were answered, and the stream of
//! watches on which one it is, so that the two can be compared; a connection that is given up is
//! told by its number too, so that a late failure on an old connection does not end the new one.
//!
//! No word of locks is in here.

mod connection;

use super::error::{Failure, HungUp, Retry};
use super::options::ConnectOptions;
use crate::backend::support::reconnect::Reconnecting;
use crate::background::Background;
use crate::error::Result;
use connection::{Connection, within};
use futures_util::Stream;
use prost::Message;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::watch;
use tonic::{Status, Streaming};

/// An answer, and how it came.
pub(super) struct Answered<A> {
    pub(super) answer: A,
    /// Whether the request was sent more than once. Then it may yet be carried out again, by a
    /// member that did not answer.
    pub(super) sent_twice: bool,
    /// The number of the connection that it came on.
    pub(super) connection: u64,
}

/// Sends requests to etcd, to whichever member answers.
pub(super) struct Client {
    options: ConnectOptions,
    /// Where connections live.
    background: Background,
    current: Reconnecting<Connection>,
    /// The index of the member to connect to next.
    member: AtomicUsize,
    /// The number of the last connection that was given up.
    given_up: watch::Sender<u64>,
    /// Whether any answer ever came.
    answered: AtomicBool,
}

impl Client {
    /// Connects with the first request.
    pub(super) fn new(options: ConnectOptions, background: Background) -> Self {
        Self {
            options,
            background,
            current: Reconnecting::default(),
            member: AtomicUsize::new(0),
            given_up: watch::Sender::new(0),
            answered: AtomicBool::new(false),
        }
    }

    /// The URL without its secrets.
    pub(super) fn shown(&self) -> &str {
        &self.options.shown
    }

    /// Sends an idempotent request.
    pub(super) async fn call<Q, A>(&self, method: &'static str, request: &Q) -> Result<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let answered = self.try_call(method, request).await;
        answered.map(|answered| answered.answer).map_err(|failure| failure.explain(self.shown()))
    }

    /// As [`call`](Self::call), for callers that decide by the failure or by how the answer came.
    pub(super) async fn try_call<Q, A>(
        &self,
        method: &'static str,
        request: &Q,
    ) -> Result<Answered<A>, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.retry(|connection: Connection| connection.unary(method, request.clone())).await
    }

    /// Sends an idempotent request to a method that takes and gives streams, and returns its first
    /// answer.
    pub(super) async fn first_answer<Q, A>(&self, method: &'static str, request: &Q) -> Result<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let asked = self.retry(|connection: Connection| {
            let requests = tokio_stream::once(request.clone());
            async move {
                let mut answers = connection.streaming::<Q, A>(method, requests).await?;
                match answers.message().await {
                    Ok(Some(answer)) => Ok(answer),
                    Ok(None) => Err(Failure::Refused(Status::unavailable("it hung up"))),
                    Err(status) => Err(Failure::Refused(status)),
                }
            }
        });
        asked.await.map(|asked| asked.answer).map_err(|failure| failure.explain(self.shown()))
    }

    /// Opens streams in both directions, on the connection whose number is returned. Not retried:
    /// the caller is a driver, which has a pause between its attempts.
    pub(super) async fn stream<Q, A>(
        &self,
        method: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<(u64, Streaming<A>), Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let (number, connection) = self.connection().await?;
        let life = connection.life.clone();
        let opening = connection.streaming(method, requests);
        let opened = within(&life, self.options.timeout, opening).await;
        if opened.is_err() {
            self.give_up(number);
        }
        Ok((number, opened?))
    }

    /// Resolves when the connection with this number is of no use any more.
    pub(super) async fn replaced(&self, number: u64) {
        let mut given_up = self.given_up.subscribe();
        let current = self.current.current(|_| true).filter(|(current, _)| *current == number);
        // The sender is ours, so this ends only when the number is passed.
        let passed = given_up.wait_for(|given_up| *given_up >= number);
        let Some((_, Connection { life, .. })) = current else { return drop(passed.await) };
        tokio::select! {
            passed = passed => drop(passed),
            () = life.ended() => self.give_up(number),
        }
    }

    /// Lets go of the connection; the next request makes a new one.
    pub(super) fn disconnect(&self) {
        if let Some((number, _)) = self.current.current(|_| true) {
            self.current.give_up(number);
            self.given_up.send_replace(number);
        }
    }

    /// Sends a request until there is an answer or every member failed.
    ///
    /// The whole takes at most `timeout` for each member, and as much again for each connection
    /// that has to be made. That bound is what lets a backend's future be driven to completion.
    async fn retry<A, F>(&self, send: impl Fn(Connection) -> F) -> Result<Answered<A>, Failure>
    where
        F: Future<Output = Result<A, Failure>>,
    {
        // Every member once; the only one a second time, on a new connection.
        let mut tries = self.options.members.len().max(2);
        let mut sent_twice = false;
        loop {
            tries -= 1;
            let failure = match self.connection().await {
                Err(failure) => failure,
                Ok((number, connection)) => {
                    let life = connection.life.clone();
                    let answer = within(&life, self.options.timeout, send(connection)).await;
                    let failure = match self.note_answer(answer, false) {
                        Ok(answer) => {
                            return Ok(Answered { answer, sent_twice, connection: number });
                        }
                        Err(failure) => failure,
                    };
                    if failure.retry() != Retry::No {
                        self.give_up(number);
                    }
                    sent_twice = true;
                    failure
                }
            };
            let again = match failure.retry() {
                Retry::Reconnect => true,
                Retry::OtherMember => self.options.members.len() > 1,
                Retry::No => false,
            };
            if !again || tries == 0 {
                return Err(failure);
            }
        }
    }

    /// Notes that etcd answered; and explains a connection that ended before any answer ever came,
    /// which is most likely one to the wrong address or with the wrong choice of TLS. (A server
    /// that refuses our certificate says so only after the handshake, and the connection may end
    /// before that message arrives.)
    fn note_answer<A>(&self, answer: Result<A, Failure>, connecting: bool) -> Result<A, Failure> {
        match answer {
            Err(failure) if failure.is_broken_connection() => {
                let when = match (self.options.encrypted, connecting) {
                    (false, _) => HungUp::Plain,
                    (true, true) => HungUp::InHandshake,
                    (true, false) => HungUp::Encrypted,
                };
                let answered = self.answered.load(Ordering::Relaxed);
                Err(if answered { failure } else { failure.before_any_answer(when) })
            }
            Err(failure @ (Failure::TimedOut | Failure::RuntimeEnded)) => Err(failure),
            answer => {
                self.answered.store(true, Ordering::Relaxed);
                answer
            }
        }
    }

    /// Takes the connection with this number out of use, if it still is in use, and turns to the
    /// next member.
    fn give_up(&self, number: u64) {
        if self.current.give_up(number).is_some() {
            self.next_member();
            self.given_up.send_replace(number);
        }
    }

    /// The next connection goes to the next member. Wraps around where it is used.
    fn next_member(&self) {
        self.member.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection in use, or a new one to the member whose turn it is.
    async fn connection(&self) -> Result<(u64, Connection), Failure> {
        let connect = async || {
            let members = &self.options.members;
            let member = &members[self.member.load(Ordering::Relaxed) % members.len()];
            let connected = self.connect(member).await;
            if connected.is_err() {
                self.next_member();
            }
            connected
        };
        self.current.get(|_| true, connect).await
    }

    /// Connects to this member, and logs in where the options name a user.
    async fn connect(&self, member: &tonic::transport::Endpoint) -> Result<Connection, Failure> {
        let (timeout, user) = (self.options.timeout, &self.options.user);
        let opened = Connection::open(member, timeout, &self.background).await;
        let mut connection = match opened {
            // The end of the connection may come before or after it counts as open. Either way it
            // was a program that listened, and did not like what it heard.
            Err(failure) if failure.is_hang_up() => self.note_answer(Err(failure), true)?,
            opened => opened?,
        };
        if let Some((name, password)) = user {
            let login = connection.log_in(name, password, timeout).await;
            connection.token = self.note_answer(login, false)?;
        }
        Ok(connection)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}
