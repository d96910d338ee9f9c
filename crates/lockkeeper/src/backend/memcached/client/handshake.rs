//! Connecting to one server: TCP, TLS, login, and whether it can keep locks.
//!
//! ```text
//!   client                                       server
//!     │ set auth … user password                      │   with credentials only
//!     │ stats settings                                │   with which settings? may we ask at all?
//!     │ mn                                            │   are there meta commands?
//!     │ version, stats                                │   who, since when?
//!     ├──────────────────────────────────────────────►│
//!     │◄──────────────────────────────────────────────┤
//! ```
//!
//! All of it is sent at once. A server that has just been started is asked again until its clock
//! moved twice: until then it could not be told from one that was started in the same second before
//! it, and neither could their tokens.

use super::link::Writer;
use super::{ConnectOptions, Life};
use crate::backend::Moment;
use crate::backend::memcached::error::Failure;
use crate::backend::memcached::protocol::{Code, Nonsense, Reply, Request, parse};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// What `uptime` begins with.
const FIRST_UPTIME: u64 = 2;
/// How far it has moved when a second has passed for certain.
const GROWN: u64 = FIRST_UPTIME + 2;
/// The first version in which a delete compares the CAS.
const OLDEST: [u32; 3] = [1, 6, 13];
/// Far above what a server says of itself.
const LONGEST_GREETING: usize = 64 << 10;

/// A connection that can be used.
pub(super) struct Greeted {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Writer,
    pub(super) life: Life,
    /// What the server's clock shows, when it was asked, and when it had answered.
    pub(super) reading: (u64, Moment, Moment),
    /// Whether its keys can be listed.
    pub(super) can_list: bool,
}

/// Connects to the server with this index.
pub(super) async fn connect(options: &ConnectOptions, server: usize) -> Result<Greeted, Failure> {
    let encrypted = options.tls.is_some();
    let late = |_| {
        let why = "it did not greet us in time".to_owned();
        Failure::Unreachable { why, encrypted }
    };
    let (mut reader, mut writer) =
        timeout(options.connect_timeout, open(options, server)).await.map_err(late)??;
    loop {
        let asking = greet(options, &mut reader, &mut writer);
        let greeting = timeout(options.connect_timeout, asking).await.map_err(late)??;
        if greeting.uptime >= GROWN {
            let Greeting { life, reading, can_list, .. } = greeting;
            return Ok(Greeted { reader, writer, life, reading, can_list });
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// A connection on which nothing was said yet.
async fn open(
    options: &ConnectOptions,
    server: usize,
) -> Result<(Box<dyn AsyncRead + Send + Unpin>, Writer), Failure> {
    let (host, port) = &options.hosts[server];
    let unreachable = |error| Failure::unreachable(&error, options.tls.is_some());
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
    // Requests are small and awaited: waiting for more of them to fill a segment costs time.
    stream.set_nodelay(true).map_err(unreachable)?;
    let Some(tls) = &options.tls else {
        let (reader, writer) = stream.into_split();
        return Ok((Box::new(reader), Writer::Direct(writer)));
    };
    let stream = tls.wrap(host, stream).await.map_err(unreachable)?;
    let (reader, writer) = tokio::io::split(stream);
    Ok((Box::new(reader), Writer::Driven(Box::new(writer))))
}

/// What a server says of itself.
struct Greeting {
    life: Life,
    uptime: u64,
    reading: (u64, Moment, Moment),
    can_list: bool,
}

async fn greet(
    options: &ConnectOptions,
    reader: &mut (impl AsyncRead + Unpin + Send),
    writer: &mut Writer,
) -> Result<Greeting, Failure> {
    let asked = Moment::now();
    let login = options.login.as_deref().map(Request::login);
    let logs_in = login.is_some();
    // The longest first: a server that wants a login hangs up on a shorter one without a word.
    let questions = ["stats settings", "mn", "version", "stats"].map(Request::plain);
    let bytes: Vec<u8> =
        login.into_iter().chain(questions).flat_map(|request| request.bytes).collect();
    write(writer, &bytes).await?;
    let mut inbox = Vec::new();
    if logs_in {
        match answer(reader, &mut inbox).await? {
            Reply::Stored => {}
            Reply::Misunderstood(said) | Reply::Refused(said) => {
                return Err(Failure::Denied(said));
            }
            other => return Err(strange(&other)),
        }
    }
    let settings = match answer(reader, &mut inbox).await? {
        Reply::Stats(settings) => settings,
        Reply::Misunderstood(said) if said.contains("unauthenticated") => {
            return Err(Failure::Denied(said));
        }
        other => return Err(strange(&other)),
    };
    match answer(reader, &mut inbox).await? {
        Reply::Code(Code::NoOperation, _) => {}
        Reply::Misunderstood(_) => {
            return Err(Failure::Unfit(format!(
                "it has no meta commands; memcached {} or later is needed",
                OLDEST.map(|part| part.to_string()).join(".")
            )));
        }
        other => return Err(strange(&other)),
    }
    let Reply::Version(version) = answer(reader, &mut inbox).await? else {
        return Err(Failure::NotMemcached("no version".to_owned()));
    };
    check_version(&version)?;
    let stats = match answer(reader, &mut inbox).await? {
        Reply::Stats(stats) => stats,
        other => return Err(strange(&other)),
    };
    let heard = Moment::now();
    let number = |name: &str| stat(&stats, name).and_then(|value| value.parse::<u64>().ok());
    let known = (number("pid"), number("uptime"), number("time"));
    let (Some(process), Some(uptime), Some(time)) = known else {
        return Err(Failure::Unfit("it does not say since when it runs; is it a proxy?".into()));
    };
    if stat(&settings, "cas_enabled") != Some("yes") {
        return Err(Failure::Unfit("it was started without CAS (-C)".into()));
    }
    if logs_in && stat(&settings, "auth_enabled_ascii") == Some("no") {
        return Err(Failure::Unfit(
            "it was started without an authentication file (-Y), so that anyone may use it: leave \
             the user and the password out of the URL, or give it the file"
                .into(),
        ));
    }
    let can_list = stat(&settings, "dump_enabled") != Some("no");
    let life = Life { started: time.saturating_sub(uptime), process };
    Ok(Greeting { life, uptime, reading: (time, asked, heard), can_list })
}

/// Writes all of it, before the connection has a task.
pub(super) async fn write(writer: &mut Writer, bytes: &[u8]) -> Result<(), Failure> {
    let broken = |_| Failure::Broken;
    match writer {
        Writer::Direct(half) => half.write_all(bytes).await.map_err(broken),
        Writer::Driven(half) => {
            half.write_all(bytes).await.map_err(broken)?;
            half.flush().await.map_err(broken)
        }
    }
}

/// The next whole answer.
async fn answer(
    reader: &mut (impl AsyncRead + Unpin + Send),
    inbox: &mut Vec<u8>,
) -> Result<Reply, Failure> {
    loop {
        match parse(inbox) {
            Ok(Some((reply, length))) => {
                inbox.drain(..length);
                return Ok(reply);
            }
            Ok(None) if inbox.len() < LONGEST_GREETING => {}
            Ok(None) => return Err(Failure::NotMemcached("far too much".to_owned())),
            Err(Nonsense(said)) => return Err(Failure::NotMemcached(said)),
        }
        match reader.read_buf(inbox).await {
            // With TLS 1.3 a server refuses our certificate only now.
            Err(error) if error.to_string().contains("alert") => {
                return Err(Failure::unreachable(&error, true));
            }
            Ok(0) | Err(_) if inbox.is_empty() => {
                return Err(Failure::NotMemcached("nothing, and hung up".to_owned()));
            }
            Ok(0) | Err(_) => {
                let Nonsense(said) = Nonsense::of(&String::from_utf8_lossy(inbox));
                return Err(Failure::NotMemcached(said));
            }
            Ok(_) => {}
        }
    }
}

fn strange(reply: &Reply) -> Failure {
    match reply {
        Reply::Misunderstood(said) | Reply::Refused(said) => Failure::Refused(said.clone()),
        other => Failure::NotMemcached(format!("{other:?}").chars().take(60).collect()),
    }
}

/// The value of a line of `stats`.
pub(super) fn stat<'a>(stats: &'a [(String, String)], name: &str) -> Option<&'a str> {
    stats.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Refuses versions that cannot compare on delete. One that cannot be read is let pass: forks count
/// as they like.
fn check_version(version: &str) -> Result<(), Failure> {
    let numbers: Vec<u32> =
        version.split(['.', '-', '_']).map_while(|it| it.parse().ok()).collect();
    if numbers.len() >= 3 && numbers[..3] < OLDEST[..] {
        let oldest = OLDEST.map(|part| part.to_string()).join(".");
        return Err(Failure::Unfit(format!(
            "it is memcached {version}, whose delete does not compare; {oldest} or later is needed"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        for old in ["1.4.39", "1.5.22", "1.6.0", "1.6.12"] {
            assert!(check_version(old).is_err(), "{old}");
        }
        for good in ["1.6.13", "1.6.18", "1.6.38-custom", "1.10.0", "2.0.0", "garden"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
    }
}
