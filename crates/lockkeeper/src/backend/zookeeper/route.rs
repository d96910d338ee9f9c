//! The way to a server, and the greeting there.

use super::jute::{Packet, Reader};
use super::options::Door;
use super::request::{AUTH, Request};
use super::trouble::Fault;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::timeout;

/// What a session is known by.
#[derive(Debug, Clone, Default)]
pub(super) struct Ticket {
    /// Zero for a session that is yet to be.
    pub(super) id: i64,
    password: Vec<u8>,
    pub(super) timeout: Duration,
}

/// A connection that was greeted.
pub(super) struct Connection {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Writer,
}

/// The other half of it.
pub(super) enum Writer {
    /// Written to by whoever has something to send: no task need be woken for it.
    Direct(Arc<OwnedWriteHalf>),
    /// Written to by the driver alone.
    Driven(Box<dyn AsyncWrite + Send + Unpin>),
}

/// Where to go.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) door: Door,
    next: AtomicUsize,
}

impl Route {
    pub(super) fn new(door: Door) -> Self {
        // So that not everyone begins with the same host.
        let begin = usize::try_from(std::process::id()).unwrap_or_default();
        Self { door, next: AtomicUsize::new(begin) }
    }

    /// Connects to one of the hosts, the first that greets us, and takes the session with us.
    ///
    /// # Errors
    /// [`Fault::Over`] when the session is no more; otherwise what the last host said.
    pub(super) async fn connect(
        &self,
        ticket: &Ticket,
        last_seen: i64,
    ) -> Result<(Connection, Ticket), Fault> {
        let mut fault = Fault::Unanswered("there is no host".into());
        for _ in &self.door.hosts {
            let index = self.next.fetch_add(1, Ordering::Relaxed) % self.door.hosts.len();
            let host = &self.door.hosts[index];
            let greeted = timeout(self.door.connect_timeout, self.greet(host, ticket, last_seen));
            match greeted.await {
                Ok(Ok(done)) => {
                    // Stay with the one that answered.
                    self.next.store(index, Ordering::Relaxed);
                    return Ok(done);
                }
                Ok(Err(Greeting::Said(fault))) => return Err(fault),
                Ok(Err(Greeting::Broken(error))) => {
                    let (host, port) = host;
                    fault = Fault::Unanswered(format!("{host}:{port}: {error}").into());
                }
                Err(_) => {
                    let (host, port) = host;
                    fault = Fault::Unanswered(format!("{host}:{port} did not greet us").into());
                }
            }
        }
        Err(fault)
    }

    /// The next connection is made to another host.
    pub(super) fn move_on(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    async fn greet(
        &self,
        (host, port): &(String, u16),
        ticket: &Ticket,
        last_seen: i64,
    ) -> Result<(Connection, Ticket), Greeting> {
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.door.tls else {
            let (mut reader, mut writer) = stream.into_split();
            let ticket = self.introduce(&mut reader, &mut writer, ticket, last_seen).await?;
            let writer = Writer::Direct(Arc::new(writer));
            return Ok((Connection { reader: Box::new(reader), writer }, ticket));
        };
        let stream = tls.wrap(host, stream).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let ticket = self.introduce(&mut reader, &mut writer, ticket, last_seen).await?;
        let writer = Writer::Driven(Box::new(writer));
        Ok((Connection { reader: Box::new(reader), writer }, ticket))
    }

    async fn introduce(
        &self,
        reader: &mut (impl AsyncRead + Unpin + Send),
        writer: &mut (impl AsyncWrite + Unpin + Send),
        ticket: &Ticket,
        last_seen: i64,
    ) -> Result<Ticket, Greeting> {
        let wanted = if ticket.id == 0 { self.door.session } else { ticket.timeout };
        let mut hello = Packet::new();
        hello.int(0).long(last_seen).int(i32::try_from(wanted.as_millis()).unwrap_or(i32::MAX));
        hello.long(ticket.id).bytes(&ticket.password).flag(false);
        writer.write_all(&hello.finish()).await?;
        writer.flush().await?;
        let answer = packet(reader).await?;
        let mut answer = Reader(&answer);
        let read = || {
            answer.int()?;
            Some((answer.int()?, answer.long()?, answer.bytes()?.to_vec()))
        };
        let (timeout, id, password) =
            { read }().ok_or_else(|| io::Error::other("this is not how ZooKeeper greets"))?;
        // A new number means a new session, whatever the server makes of it: ours is no more.
        if timeout <= 0 || id == 0 || (ticket.id != 0 && ticket.id != id) {
            return Err(Greeting::Said(Fault::Over));
        }
        if let Some(credentials) = &self.door.credentials {
            writer.write_all(&Request::auth("digest", credentials.as_bytes())).await?;
            writer.flush().await?;
            let answer = packet(reader).await?;
            let mut answer = Reader(&answer);
            match (answer.int(), answer.long(), answer.int()) {
                (Some(AUTH), _, Some(0)) => {}
                (Some(AUTH), _, Some(code)) => return Err(Greeting::Said(Fault::of(code))),
                _ => return Err(io::Error::other("this is no answer to credentials").into()),
            }
        }
        let timeout = Duration::from_millis(timeout.unsigned_abs().into());
        Ok(Ticket { id, password, timeout })
    }
}

/// Why there was no greeting.
enum Greeting {
    Said(Fault),
    Broken(io::Error),
}

impl From<io::Error> for Greeting {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

async fn packet(reader: &mut (impl AsyncRead + Unpin + Send)) -> io::Result<Vec<u8>> {
    /// Far above any greeting.
    const LONGEST: u32 = 1 << 16;
    let length = reader.read_u32().await?;
    if length > LONGEST {
        return Err(io::Error::other("this is not how ZooKeeper greets"));
    }
    let mut packet = vec![0; usize::try_from(length).unwrap_or_default()];
    reader.read_exact(&mut packet).await?;
    Ok(packet)
}
