//! The connections that everything of a keeper goes through, one per server, each made anew when it
//! broke.
//!
//! It knows items and their CAS, and nothing of what they are used for.
//!
//! | file | what |
//! |---|---|
//! | `link` | one connection: requests of many callers in a row, answers in the same order |
//! | `handshake` | TCP, TLS, login, and whether the server can keep locks |
//! | `ticks` | whether the server's clock runs |
//! | `dump` | the keys of a server, on a connection of their own |
//!
//! Why not a crate: a caller that leaves, or a request that takes too long, closes the connection of
//! those there are, with everybody else's requests on it; and none says which life of the server an
//! answer is from, without which a CAS means nothing.

mod dump;
mod handshake;
mod link;
mod ticks;

pub(super) use super::protocol::{Code, When};

use super::error::Failure;
use super::keys::{Place, address};
use super::protocol::{Flags, Reply, Request};
use crate::backend::support::encryption::Encryption;
use crate::backend::support::reconnect::Reconnecting;
use crate::backend::support::sync::lock;
use crate::backend::{FencingToken, Moment};
use crate::background::Background;
use handshake::stat;
use link::Link;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ticks::Ticks;
use tokio::time::timeout;

/// How many tokens a second of a server's life has room for: they are in the unit that the tokens of
/// all stores with a clock are in.
const TOKENS_PER_SECOND: u64 = 1_000_000;

/// Where the servers are, and how to connect to them.
#[derive(Clone)]
pub(super) struct ConnectOptions {
    pub(super) hosts: Vec<(String, u16)>,
    /// `user password`.
    pub(super) login: Option<String>,
    pub(super) tls: Option<Encryption>,
    /// How long a request may take.
    pub(super) timeout: Duration,
    /// How long each step of connecting may take.
    pub(super) connect_timeout: Duration,
    /// The URL without secrets, for errors.
    pub(super) shown: String,
}

/// Without the login.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectOptions({})", self.shown)
    }
}

/// One life of a server process. What it stored, and what its CAS means, ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    /// When it was started, in seconds since 1970 by its own clock.
    pub(super) started: u64,
    pub(super) process: u64,
}

/// One version of an item, in one life of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    cas: u64,
    life: Life,
}

impl Version {
    /// The token of a grant by the `add` that made this version.
    ///
    /// A server counts every change of an item, in one counter for all keys: that is the CAS. It
    /// begins at one with every start, so the moment of the start is put in front, in microseconds.
    /// The sum grows with every grant, whatever is evicted; and over a restart, as long as the server
    /// makes fewer than a million changes per second on average and its clock is not set back.
    pub(super) fn token(&self) -> Option<FencingToken> {
        let start = self.life.started.checked_mul(TOKENS_PER_SECOND)?;
        let number = start.checked_add(self.cas).filter(|number| *number < 1 << 53)?;
        FencingToken::new(number)
    }

    #[cfg(test)]
    pub(super) fn for_tests(started: u64, cas: u64) -> Self {
        Self { cas, life: Life { started, process: 1 } }
    }
}

/// All servers.
#[derive(Debug)]
pub(super) struct Client {
    servers: Vec<Arc<Server>>,
}

/// One server, as far as it is known.
struct Server {
    options: ConnectOptions,
    index: usize,
    /// Where connections live.
    background: Background,
    current: Reconnecting<Connection>,
    ticks: Mutex<Ticks>,
    /// Called when a connection broke.
    broken: Arc<dyn Fn() + Send + Sync>,
}

/// A connection, and whose it is.
#[derive(Debug, Clone)]
struct Connection {
    link: Link,
    life: Life,
    can_list: bool,
}

/// What became of a request that stores.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stored {
    /// Done, and since when the server certainly keeps the item; `None` if its clock stood still, so
    /// that the item may end early.
    Done { version: Version, since: Option<Moment> },
    /// Not done: there is an item already, or one of another version.
    Other,
    /// Not done: there is no item.
    Absent,
}

/// An item as it was read.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) value: Vec<u8>,
    pub(super) version: Version,
    /// How many seconds the server keeps it, at most one too many.
    pub(super) ttl: i64,
}

impl Client {
    /// Connects with the first request. `broken` is called whenever a connection breaks.
    pub(super) fn new(
        options: &ConnectOptions,
        background: &Background,
        broken: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let broken: Arc<dyn Fn() + Send + Sync> = Arc::new(broken);
        let server = |index| {
            Arc::new(Server {
                options: options.clone(),
                index,
                background: background.clone(),
                current: Reconnecting::default(),
                ticks: Mutex::default(),
                broken: broken.clone(),
            })
        };
        Self { servers: (0..options.hosts.len()).map(server).collect() }
    }

    /// How many servers there are.
    pub(super) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Which server this is, for errors.
    pub(super) fn shown(&self, server: usize) -> String {
        format!("memcached://{}", address(&self.servers[server].options.hosts[server]))
    }

    /// Connects, unless there is a connection: so that a wrong port or login is reported early.
    pub(super) async fn reach(&self, server: usize) -> Result<Life, Failure> {
        Ok(self.servers[server].connection().await?.1.life)
    }

    /// Stores an item if there is none.
    ///
    /// Not repeated: the caller must know that it may have been done already.
    pub(super) async fn add(
        &self,
        place: &Place,
        value: &[u8],
        seconds: u64,
    ) -> Result<Stored, Failure> {
        self.store(place, value, When::Absent, seconds).await
    }

    /// Stores an item in the place of this version; [`Stored::Absent`] also when the server has been
    /// restarted since, which took the item with it.
    pub(super) async fn replace(
        &self,
        place: &Place,
        value: &[u8],
        version: Version,
        seconds: u64,
    ) -> Result<Stored, Failure> {
        let server = &self.servers[place.server];
        let (number, connection) = server.connection().await?;
        if connection.life != version.life {
            return Ok(Stored::Absent);
        }
        let when = When::Is(version.cas);
        server.store(number, &connection, place, value, when, seconds).await
    }

    /// Stores an item whatever is there.
    pub(super) async fn set(
        &self,
        place: &Place,
        value: &[u8],
        seconds: u64,
    ) -> Result<Stored, Failure> {
        self.store(place, value, When::Always, seconds).await
    }

    /// Not for [`When::Is`]: a CAS belongs to a life, see [`replace`](Self::replace).
    async fn store(
        &self,
        place: &Place,
        value: &[u8],
        when: When,
        seconds: u64,
    ) -> Result<Stored, Failure> {
        let server = &self.servers[place.server];
        let (number, connection) = server.connection().await?;
        server.store(number, &connection, place, value, when, seconds).await
    }

    /// The date `seconds` from now, by the server's clock: for spans that are longer than memcached
    /// takes.
    pub(super) async fn date(&self, place: &Place, seconds: u64) -> Result<u64, Failure> {
        Ok(self.time(place.server).await?.saturating_add(seconds))
    }

    /// What the clock of a server says, in whole seconds since 1970.
    pub(super) async fn time(&self, server: usize) -> Result<u64, Failure> {
        let server = &self.servers[server];
        let (number, connection) = server.connection().await?;
        match server.ask(number, &connection, Request::plain("stats")).await? {
            Reply::Stats(stats) => stat(&stats, "time")
                .and_then(|time| time.parse::<u64>().ok())
                .ok_or_else(|| Failure::Refused("it does not tell the time".to_owned())),
            other => Err(unexpected(other)),
        }
    }

    /// What a server says of itself: `stats` or `stats settings`.
    pub(super) async fn stats(
        &self,
        server: usize,
        question: &str,
    ) -> Result<Vec<(String, String)>, Failure> {
        let server = &self.servers[server];
        let (number, connection) = server.connection().await?;
        match server.ask(number, &connection, Request::plain(question)).await? {
            Reply::Stats(stats) => Ok(stats),
            other => Err(unexpected(other)),
        }
    }

    /// Asks a server for nothing, and waits for the answer.
    pub(super) async fn ping(&self, server: usize) -> Result<(), Failure> {
        let server = &self.servers[server];
        let (number, connection) = server.connection().await?;
        match server.ask(number, &connection, Request::plain("mn")).await? {
            Reply::Code(Code::NoOperation, _) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Deletes this version of an item: `Done`, `Changed` or `Absent`.
    pub(super) async fn delete(&self, place: &Place, version: Version) -> Result<Code, Failure> {
        let server = &self.servers[place.server];
        let (number, connection) = server.connection().await?;
        if connection.life != version.life {
            return Ok(Code::Absent);
        }
        let request = Request::delete(connection.link.number(), &place.key, version.cas);
        match server.ask(number, &connection, request).await? {
            Reply::Code(code @ (Code::Done | Code::Changed | Code::Absent), _) => Ok(code),
            other => Err(unexpected(other)),
        }
    }

    /// Reads an item.
    pub(super) async fn read(&self, place: &Place) -> Result<Option<Item>, Failure> {
        let server = &self.servers[place.server];
        let (number, connection) = server.connection().await?;
        let request = Request::get(connection.link.number(), &place.key);
        match server.ask(number, &connection, request).await? {
            Reply::Value(value, Flags { cas, ttl, .. }) => {
                let version = Version { cas, life: connection.life };
                Ok(Some(Item { value, version, ttl }))
            }
            Reply::Code(Code::Absent, _) => Ok(None),
            other => Err(unexpected(other)),
        }
    }

    /// Counts up by `step`, from `first` on: what the count is then.
    pub(super) async fn count(
        &self,
        place: &Place,
        step: u64,
        first: u64,
    ) -> Result<Option<u64>, Failure> {
        let server = &self.servers[place.server];
        let (number, connection) = server.connection().await?;
        let request = Request::count(connection.link.number(), &place.key, step, first);
        match server.ask(number, &connection, request).await? {
            Reply::Value(value, _) => {
                Ok(std::str::from_utf8(&value).ok().and_then(|text| text.trim().parse().ok()))
            }
            Reply::Misunderstood(said) if said.contains("non-numeric") => Ok(None),
            other => Err(unexpected(other)),
        }
    }

    /// The keys of a server that `wanted` picks; `None` where the server does not list them.
    pub(super) async fn dump(
        &self,
        server: usize,
        wanted: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<Option<Vec<String>>, Failure> {
        let server = &self.servers[server];
        if !server.connection().await?.1.can_list {
            return Ok(None);
        }
        let (options, index, wanted) = (server.options.clone(), server.index, Arc::new(wanted));
        let dumped = server.background.settle(|| {
            let (options, wanted) = (options.clone(), wanted.clone());
            async move { dump::keys(&options, index, &*wanted).await }
        });
        dumped.await.map_err(|_| Failure::NoThread)?
    }

    /// Ends all connections; the next request makes a new one.
    pub(super) fn close(&self) {
        for server in &self.servers {
            if let Some(connection) = server.current.take_if(|_| true) {
                connection.link.close();
            }
        }
    }
}

impl Server {
    /// The connection in use, or a new one.
    async fn connection(&self) -> Result<(u64, Connection), Failure> {
        let make = async || {
            let made = self.background.settle(|| {
                let (options, index) = (self.options.clone(), self.index);
                let broken = self.broken.clone();
                async move {
                    let greeted = handshake::connect(&options, index).await?;
                    let link = Link::start(greeted.reader, greeted.writer, move || broken());
                    let (life, can_list) = (greeted.life, greeted.can_list);
                    Ok((Connection { link, life, can_list }, greeted.reading))
                }
            });
            let (connection, (seconds, asked, heard)) =
                made.await.map_err(|_| Failure::NoThread)??;
            lock(&self.ticks).begin(connection.life, seconds, asked, heard);
            Ok(connection)
        };
        self.current.get(|connection| connection.link.is_open(), make).await
    }

    /// Stores, with a reading of the server's clock in front unless there was one just now.
    async fn store(
        &self,
        number: u64,
        connection: &Connection,
        place: &Place,
        value: &[u8],
        when: When,
        seconds: u64,
    ) -> Result<Stored, Failure> {
        let (link, life) = (&connection.link, connection.life);
        let request = Request::set(link.number(), &place.key, value, when, seconds);
        let asked = Moment::now();
        let vouched = lock(&self.ticks).vouched(life, asked);
        let (reply, since) = match vouched {
            Some(since) => (self.ask(number, connection, request).await?, Some(since)),
            None => {
                let [reading, reply] = link.send([Request::plain("stats"), request])?;
                let both = async { Ok((reading.wait().await?, reply.wait().await?)) };
                let (reading, reply) = self.in_time(number, connection, both).await?;
                let fresh = self.reading(life, &reading, asked);
                (reply, fresh.then_some(asked))
            }
        };
        match reply {
            Reply::Code(Code::Done, Flags { cas, .. }) => {
                Ok(Stored::Done { version: Version { cas, life }, since })
            }
            Reply::Code(Code::NotStored | Code::Changed, _) => Ok(Stored::Other),
            Reply::Code(Code::Absent, _) => Ok(Stored::Absent),
            other => Err(unexpected(other)),
        }
    }

    /// Whether the server's clock runs, by an answer to `stats`.
    fn reading(&self, life: Life, reply: &Reply, asked: Moment) -> bool {
        let Reply::Stats(stats) = reply else { return false };
        let seconds = stat(stats, "time").and_then(|time| time.parse().ok());
        let read = |seconds| lock(&self.ticks).read(life, seconds, asked, Moment::now());
        seconds.is_some_and(read)
    }

    async fn ask(
        &self,
        number: u64,
        connection: &Connection,
        request: Request,
    ) -> Result<Reply, Failure> {
        let [answer] = connection.link.send([request])?;
        self.in_time(number, connection, answer.wait()).await
    }

    /// Waits for answers; a connection on which they do not come in time is closed, so that they
    /// come to nobody.
    async fn in_time<T>(
        &self,
        number: u64,
        connection: &Connection,
        answers: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let outcome = timeout(self.options.timeout, answers).await;
        let outcome = outcome.unwrap_or(Err(Failure::TimedOut));
        if outcome.is_err() && self.current.give_up(number).is_some() {
            connection.link.close();
            (self.broken)();
        }
        outcome
    }
}

/// What an answer means that the request does not account for.
fn unexpected(reply: Reply) -> Failure {
    match reply {
        Reply::Misunderstood(said) | Reply::Refused(said) => Failure::Refused(said),
        other => Failure::Refused(format!("{other:?}").chars().take(60).collect()),
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("at", &self.options.shown)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
