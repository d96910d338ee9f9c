//! One connection to one server: TCP, TLS, and the protocol's handshake.
//!
//! ```text
//!   client                                       server
//!     │ last zxid seen, timeout, session id, password │    zero id: a new session
//!     ├──────────────────────────────────────────────►│
//!     │◄──────────────────────────────────────────────┤    timeout, session id, password
//!     │ auth digest user:password                     │    where there are credentials
//!     ├──────────────────────────────────────────────►│
//!     │◄──────────────────────────────────────────────┤
//! ```
//!
//! The server decides on the timeout, and may answer with another session id than asked for: then the
//! session that we had is over.

use super::error::Failure;
use super::jute::{Packet, Reader};
use super::requests::{AUTH, Request};
use crate::backend::support::encryption::Encryption;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::timeout;

/// Where the servers are, and how to connect to them.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    pub(crate) hosts: Vec<(String, u16)>,
    /// `user:password`.
    pub(crate) credentials: Option<String>,
    pub(crate) tls: Option<Encryption>,
    /// The session timeout to ask for; the server decides.
    pub(crate) session: Duration,
    /// How long a request may take.
    pub(crate) timeout: Duration,
    /// How long the handshake with one server may take.
    pub(crate) connect_timeout: Duration,
    /// The longest pause between two attempts to connect.
    pub(crate) backoff: Duration,
    /// How often all servers are tried before a session is given up; zero for no limit.
    pub(crate) tries: u32,
    /// The URL without secrets, for errors.
    pub(crate) shown: String,
}

/// Without the credentials.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectOptions({})", self.shown)
    }
}

/// What a session is resumed with on another connection.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionKey {
    /// Zero for a session that is yet to be opened.
    pub(super) id: i64,
    /// Made by the server; without it, anyone who guesses the id could take the session over.
    password: Vec<u8>,
    /// As granted by the server.
    pub(super) timeout: Duration,
}

/// A connection after the handshake.
pub(super) struct Connection {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Writer,
}

/// Its sending half.
pub(super) enum Writer {
    /// Plain TCP, to which any thread writes directly: no task need be woken to send a request.
    Direct(Arc<OwnedWriteHalf>),
    /// TLS, which has state of its own: only the driver writes.
    Driven(Box<dyn AsyncWrite + Send + Unpin>),
}

/// Connects to one of the servers, and remembers which.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) options: ConnectOptions,
    /// The index of the server to connect to next, modulo their number.
    next: AtomicUsize,
}

impl Connector {
    pub(super) fn new(options: ConnectOptions) -> Self {
        // Spreads the processes of a machine over the servers.
        let begin = usize::try_from(std::process::id()).unwrap_or_default();
        Self { options, next: AtomicUsize::new(begin) }
    }

    /// Connects to the first server that completes the handshake, and opens or resumes a session.
    /// A server that has not seen the transaction `last_seen` yet refuses: the session's reads
    /// must not go back in time.
    ///
    /// # Errors
    /// [`Failure::SessionEnded`] when there is no such session any more; otherwise what the last
    /// server said.
    pub(super) async fn connect(
        &self,
        key: &SessionKey,
        last_seen: i64,
    ) -> Result<(Connection, SessionKey), Failure> {
        let hosts = &self.options.hosts;
        let mut failure = Failure::Unanswered("there is no host".into());
        for _ in hosts {
            let index = self.next.fetch_add(1, Ordering::Relaxed) % hosts.len();
            let (host, port) = &hosts[index];
            let handshake = self.open(host, *port, key, last_seen);
            match timeout(self.options.connect_timeout, handshake).await {
                Ok(Ok(done)) => {
                    // The next connection is made to the same server.
                    self.next.store(index, Ordering::Relaxed);
                    return Ok(done);
                }
                Ok(Err(HandshakeError::Refused(failure))) => return Err(failure),
                Ok(Err(HandshakeError::Broken(error))) => {
                    failure = Failure::Unanswered(format!("{host}:{port}: {error}").into());
                }
                Err(_) => {
                    let why = format!(
                        "{host}:{port} did not greet us; is that ZooKeeper? If it speaks TLS, add \
                         ?tls=true"
                    );
                    failure = Failure::Unanswered(why.into());
                }
            }
        }
        Err(failure)
    }

    /// Makes the next connection to another server.
    pub(super) fn skip_server(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    /// Connects to one server.
    async fn open(
        &self,
        host: &str,
        port: u16,
        key: &SessionKey,
        last_seen: i64,
    ) -> Result<(Connection, SessionKey), HandshakeError> {
        let stream = TcpStream::connect((host, port)).await?;
        // Requests are small and awaited: waiting for more of them to fill a segment costs time.
        stream.set_nodelay(true)?;
        let Some(tls) = &self.options.tls else {
            let (mut reader, mut writer) = stream.into_split();
            let key = self.handshake(&mut reader, &mut writer, key, last_seen).await?;
            let writer = Writer::Direct(Arc::new(writer));
            return Ok((Connection { reader: Box::new(reader), writer }, key));
        };
        let stream = tls.wrap(host, stream).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let key = self.handshake(&mut reader, &mut writer, key, last_seen).await?;
        let writer = Writer::Driven(Box::new(writer));
        Ok((Connection { reader: Box::new(reader), writer }, key))
    }

    /// Opens a session or resumes it, and logs in.
    async fn handshake(
        &self,
        reader: &mut (impl AsyncRead + Unpin + Send),
        writer: &mut (impl AsyncWrite + Unpin + Send),
        key: &SessionKey,
        last_seen: i64,
    ) -> Result<SessionKey, HandshakeError> {
        let wanted = if key.id == 0 { self.options.session } else { key.timeout };
        let mut hello = Packet::new();
        hello.int(0).long(last_seen).int(i32::try_from(wanted.as_millis()).unwrap_or(i32::MAX));
        hello.long(key.id).bytes(&key.password).flag(false);
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
        // Another id means another session, whatever the server makes of it: ours is over.
        if timeout <= 0 || id == 0 || (key.id != 0 && key.id != id) {
            return Err(HandshakeError::Refused(Failure::SessionEnded));
        }
        self.log_in(reader, writer).await?;
        let timeout = Duration::from_millis(timeout.unsigned_abs().into());
        Ok(SessionKey { id, password, timeout })
    }

    /// Sends the credentials, if there are any. A login belongs to the connection, so it is
    /// repeated with every new one.
    async fn log_in(
        &self,
        reader: &mut (impl AsyncRead + Unpin + Send),
        writer: &mut (impl AsyncWrite + Unpin + Send),
    ) -> Result<(), HandshakeError> {
        let Some(credentials) = &self.options.credentials else { return Ok(()) };
        writer.write_all(&Request::auth("digest", credentials.as_bytes())).await?;
        writer.flush().await?;
        let answer = packet(reader).await?;
        let mut answer = Reader(&answer);
        match (answer.int(), answer.long(), answer.int()) {
            (Some(AUTH), _, Some(0)) => Ok(()),
            (Some(AUTH), _, Some(code)) => Err(HandshakeError::Refused(Failure::of(code))),
            _ => Err(io::Error::other("this is no answer to credentials").into()),
        }
    }
}

/// Why a handshake failed.
enum HandshakeError {
    /// The server answered, and another one would answer the same.
    Refused(Failure),
    /// This server could not be reached, or made no sense.
    Broken(io::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// One packet of the handshake. Read exactly, with nothing buffered beyond it: what follows is the
/// driver's to read.
async fn packet(reader: &mut (impl AsyncRead + Unpin + Send)) -> io::Result<Vec<u8>> {
    /// Far above any handshake: a server of another kind may send anything.
    const LONGEST: u32 = 1 << 16;
    let length = reader.read_u32().await?;
    if length > LONGEST {
        return Err(io::Error::other("this is not how ZooKeeper greets"));
    }
    let mut packet = vec![0; usize::try_from(length).unwrap_or_default()];
    reader.read_exact(&mut packet).await?;
    Ok(packet)
}
