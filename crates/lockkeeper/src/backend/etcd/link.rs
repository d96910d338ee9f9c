//! The connection that everything of a keeper goes through, and what makes it anew.

use super::lock;
use super::proto::{AuthenticateRequest, AuthenticateResponse, path};
use super::trouble::{Remedy, Trouble};
use crate::backend::support::life::Life;
use crate::background::Background;
use crate::error::Result;
use futures_util::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// The largest answer: a list of all locks can be long.
const LARGEST: usize = 256 << 20;
/// How long a password may take to be checked, at least. etcd makes that slow on purpose, and
/// whoever gave up on it would only have asked for it in vain: where many log in at once, as after
/// a restart of everything, nobody would get in.
const LOGIN: Duration = Duration::from_secs(10);

/// Where etcd is, and what it takes to be let in.
pub(super) struct Door {
    pub(super) hosts: Vec<Endpoint>,
    pub(super) credentials: Option<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) encrypted: bool,
    /// The URL without its secrets.
    pub(super) shown: String,
}

/// An answer, and how it was come by.
pub(super) struct Answered<A> {
    pub(super) answer: A,
    /// Whether it was asked more than once. Then it may yet be carried out again, by who did not
    /// answer.
    pub(super) asked_twice: bool,
    /// The number of the connection that it came on.
    pub(super) connection: u64,
}

/// One connection to one member, made anew to the next when it broke or is of no use.
pub(super) struct Link {
    door: Door,
    /// Where connections live.
    home: Background,
    current: Mutex<Current>,
    /// So that many who find the connection broken make one new one.
    connecting: tokio::sync::Mutex<()>,
    /// Changes with every connection that is given up.
    given_up: watch::Sender<u64>,
    /// Whether etcd ever said anything.
    answered: AtomicBool,
}

#[derive(Default)]
struct Current {
    number: u64,
    host: usize,
    wire: Option<Wire>,
}

#[derive(Clone)]
struct Wire {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    life: Life,
}

/// What became of `asked`, unless the connection's runtime ends or time is up before.
async fn within<A>(
    life: &Life,
    limit: Duration,
    asked: impl Future<Output = Result<A, Trouble>>,
) -> Result<A, Trouble> {
    tokio::select! {
        biased;
        answer = tokio::time::timeout(limit, asked) => answer.unwrap_or(Err(Trouble::TimedOut)),
        () = life.ended() => Err(Trouble::RuntimeEnded),
    }
}

impl Link {
    pub(super) fn new(door: Door, home: Background) -> Self {
        Self {
            door,
            home,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::new(()),
            given_up: watch::Sender::new(0),
            answered: AtomicBool::new(false),
        }
    }

    pub(super) fn shown(&self) -> &str {
        &self.door.shown
    }

    /// Asks a question that does the same when it is asked twice.
    pub(super) async fn call<Q, A>(&self, method: &'static str, question: &Q) -> Result<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let answered = self.try_call(method, question).await;
        answered.map(|answered| answered.answer).map_err(|trouble| trouble.explain(self.shown()))
    }

    /// As [`call`](Self::call), for who wants to know what the trouble is, or how it was answered.
    pub(super) async fn try_call<Q, A>(
        &self,
        method: &'static str,
        question: &Q,
    ) -> Result<Answered<A>, Trouble>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.persist(|wire: Wire| {
            let codec = ProstCodec::<Q, A>::default();
            let mut client = Grpc::new(wire.channel).max_decoding_message_size(LARGEST);
            let request = with_token(Request::new(question.clone()), wire.token);
            async move {
                client.ready().await.map_err(Trouble::Unreachable)?;
                let answer = client.unary(request, PathAndQuery::from_static(method), codec).await;
                answer.map(tonic::Response::into_inner).map_err(Trouble::Refused)
            }
        })
        .await
    }

    /// Asks a question of a method that takes and gives streams, and returns its first answer.
    pub(super) async fn first_answer<Q, A>(&self, method: &'static str, question: &Q) -> Result<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let asked = self.persist(|wire: Wire| {
            let questions = tokio_stream::once(question.clone());
            async move {
                let mut answers = wire.streaming::<Q, A>(method, questions).await?;
                match answers.message().await {
                    Ok(Some(answer)) => Ok(answer),
                    Ok(None) => Err(Trouble::Refused(Status::unavailable("it hung up"))),
                    Err(status) => Err(Trouble::Refused(status)),
                }
            }
        });
        asked.await.map(|asked| asked.answer).map_err(|trouble| trouble.explain(self.shown()))
    }

    /// Opens streams in both directions, on the connection whose number is returned.
    pub(super) async fn stream<Q, A>(
        &self,
        method: &'static str,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<(u64, Streaming<A>), Trouble>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let (number, wire) = self.wire().await?;
        let life = wire.life.clone();
        let opened = within(&life, self.door.timeout, wire.streaming(method, questions)).await;
        if opened.is_err() {
            self.give_up(number);
        }
        Ok((number, opened?))
    }

    /// Resolves when the connection with this number is of no use any more.
    pub(super) async fn replaced(&self, number: u64) {
        let mut given_up = self.given_up.subscribe();
        let current = self.connected().filter(|(current, _)| *current == number);
        // The sender is ours, so this ends only when the number is passed.
        let passed = given_up.wait_for(|given_up| *given_up >= number);
        let Some((_, Wire { life, .. })) = current else { return drop(passed.await) };
        tokio::select! {
            passed = passed => drop(passed),
            () = life.ended() => self.give_up(number),
        }
    }

    async fn persist<A, F>(&self, ask: impl Fn(Wire) -> F) -> Result<Answered<A>, Trouble>
    where
        F: Future<Output = Result<A, Trouble>>,
    {
        // Every member once; the only one a second time, on a new connection.
        let mut tries = self.door.hosts.len().max(2);
        let mut asked_twice = false;
        loop {
            tries -= 1;
            let trouble = match self.wire().await {
                Err(trouble) => trouble,
                Ok((number, wire)) => {
                    let life = wire.life.clone();
                    let answer = within(&life, self.door.timeout, ask(wire)).await;
                    let trouble = match self.heard(answer) {
                        Ok(answer) => {
                            return Ok(Answered { answer, asked_twice, connection: number });
                        }
                        Err(trouble) => trouble,
                    };
                    if trouble.remedy() != Remedy::None {
                        self.give_up(number);
                    }
                    asked_twice = true;
                    trouble
                }
            };
            let again = match trouble.remedy() {
                Remedy::Reconnect => true,
                Remedy::Elsewhere => self.door.hosts.len() > 1,
                Remedy::None => false,
            };
            if !again || tries == 0 {
                return Err(trouble);
            }
        }
    }

    /// Who is hung up on before etcd said anything at all is likely at the wrong door. Whoever is
    /// refused for his certificate is told so after he was greeted, if the word reaches him before
    /// the end of the connection does.
    fn heard<A>(&self, answer: Result<A, Trouble>) -> Result<A, Trouble> {
        match answer {
            Err(trouble) if trouble.is_silence() => {
                let answered = self.answered.load(Ordering::Relaxed);
                Err(if answered { trouble } else { trouble.before_a_word(self.door.encrypted) })
            }
            Err(trouble @ (Trouble::TimedOut | Trouble::RuntimeEnded)) => Err(trouble),
            answer => {
                self.answered.store(true, Ordering::Relaxed);
                answer
            }
        }
    }

    fn give_up(&self, number: u64) {
        let mut current = lock(&self.current);
        if current.number == number && current.wire.take().is_some() {
            current.host = (current.host + 1) % self.door.hosts.len();
            drop(current);
            self.given_up.send_replace(number);
        }
    }

    async fn wire(&self) -> Result<(u64, Wire), Trouble> {
        if let Some(wire) = self.connected() {
            return Ok(wire);
        }
        let _one = self.connecting.lock().await;
        if let Some(wire) = self.connected() {
            return Ok(wire);
        }
        let host = lock(&self.current).host;
        let connected = self.connect(&self.door.hosts[host]).await;
        let mut current = lock(&self.current);
        match connected {
            Ok(wire) => {
                current.number += 1;
                current.wire = Some(wire.clone());
                Ok((current.number, wire))
            }
            Err(trouble) => {
                current.host = (host + 1) % self.door.hosts.len();
                Err(trouble)
            }
        }
    }

    fn connected(&self) -> Option<(u64, Wire)> {
        let current = lock(&self.current);
        Some((current.number, current.wire.clone()?))
    }

    async fn connect(&self, host: &Endpoint) -> Result<Wire, Trouble> {
        let connecting = self.home.settle(|| {
            let host = host.clone();
            async move { host.connect().await.map(|channel| (channel, Life::begin())) }
        });
        let connected = tokio::time::timeout(self.door.timeout, connecting).await;
        let connected = connected.ok().and_then(Result::ok).ok_or(Trouble::TimedOut)?;
        let (channel, life) = connected.map_err(Trouble::Unreachable)?;
        let Some((name, password)) = self.door.credentials.clone() else {
            return Ok(Wire { channel, token: None, life });
        };
        let mut client = Grpc::new(channel.clone());
        let logging_in = async {
            client.ready().await.map_err(Trouble::Unreachable)?;
            let request = Request::new(AuthenticateRequest { name, password });
            let codec = ProstCodec::<_, AuthenticateResponse>::default();
            let path = PathAndQuery::from_static(path::AUTHENTICATE);
            client.unary(request, path, codec).await.map_err(Trouble::Refused)
        };
        let answer = within(&life, self.door.timeout.max(LOGIN), logging_in).await;
        let answer = self.heard(answer)?;
        let token = answer.into_inner().token.parse().ok();
        Ok(Wire { channel, token, life })
    }
}

impl Wire {
    async fn streaming<Q, A>(
        self,
        method: &'static str,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Trouble>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel);
        client.ready().await.map_err(Trouble::Unreachable)?;
        let request = with_token(Request::new(questions), self.token);
        let codec = ProstCodec::<Q, A>::default();
        let opened = client.streaming(request, PathAndQuery::from_static(method), codec).await;
        opened.map(tonic::Response::into_inner).map_err(Trouble::Refused)
    }
}

fn with_token<Q>(mut request: Request<Q>, token: Option<MetadataValue<Ascii>>) -> Request<Q> {
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.door.fmt(f)
    }
}
