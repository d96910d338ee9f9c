//! Counts what clients ask of a server, on its way there: the same for every client of a store.

use crate::proxy::{Proxy, Reader, Step};
use crate::server::Kind;
use crate::workload::url;
use anyhow::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was counted so far.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    trips: AtomicU64,
}

/// Counting proxies before every host of a store.
#[derive(Debug)]
pub(crate) struct Counting {
    proxies: Vec<Proxy>,
    counts: Arc<Counts>,
}

impl Counting {
    pub(crate) fn before(store: &str, kind: Kind) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let start = |host: SocketAddr| {
            let counts = counts.clone();
            Proxy::start_read(host, move || counting(kind, counts.clone()))
        };
        let proxies: std::io::Result<Vec<Proxy>> =
            url::hosts(store)?.into_iter().map(start).collect();
        Ok(Self { proxies: proxies?, counts })
    }

    /// The store's URL, by way of the proxies.
    pub(crate) fn url(&self, store: &str) -> Result<String> {
        let hosts: Vec<SocketAddr> = self.proxies.iter().map(|proxy| proxy.address()).collect();
        url::with_hosts(store, &hosts)
    }

    /// How many requests were sent.
    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// How many times something was sent at once that the client then waits for.
    pub(crate) fn trips(&self) -> u64 {
        self.counts.trips.load(Ordering::SeqCst)
    }
}

fn counting(kind: Kind, counts: Arc<Counts>) -> Reader {
    let mut frames = Frames::of(kind);
    Box::new(move |bytes| {
        let requests = frames.count(bytes);
        counts.requests.fetch_add(requests, Ordering::SeqCst);
        counts.trips.fetch_add(u64::from(requests > 0), Ordering::SeqCst);
        Step::Pass
    })
}

/// Finds the requests in what one client sends.
#[derive(Debug)]
struct Frames {
    kind: Kind,
    /// What does not make up a whole message yet.
    rest: Vec<u8>,
    /// Whether the client has said hello, which has another form in some protocols.
    greeted: bool,
}

/// A message: how long it is, and whether it is a request that is answered.
type Message = Option<(usize, bool)>;

impl Frames {
    fn of(kind: Kind) -> Self {
        Self { kind, rest: Vec::new(), greeted: false }
    }

    fn count(&mut self, bytes: &[u8]) -> u64 {
        self.rest.extend(bytes);
        let (mut at, mut requests) = (0, 0);
        while let Some((length, asks)) = self.message(at) {
            at += length;
            requests += u64::from(asks);
        }
        self.rest.drain(..at);
        requests
    }

    fn message(&mut self, at: usize) -> Message {
        let bytes = &self.rest[at..];
        let (length, asks, hello) = match self.kind {
            Kind::Redis | Kind::Redlock => command(bytes).map(|length| (length, true, false))?,
            Kind::ZooKeeper => (4 + length_of(bytes, 0, 4)?, true, false),
            Kind::Memcached => line(bytes).map(|length| (length, true, false))?,
            // The hello is without a type, and may come twice: in plain words after one for TLS.
            Kind::Postgres if !self.greeted => {
                let length = length_of(bytes, 0, 4)?;
                (length, false, length > 8)
            }
            // A message has a type; after a query or a sync the server answers.
            Kind::Postgres => {
                let asks = [b'Q', b'S'].contains(bytes.first()?);
                (1 + length_of(bytes, 1, 4)?, asks, false)
            }
            // Packets are numbered from the beginning of a command.
            Kind::MariaDb => {
                let length = usize::from(*bytes.first()?)
                    + (usize::from(*bytes.get(1)?) << 8)
                    + (usize::from(*bytes.get(2)?) << 16);
                (4 + length, *bytes.get(3)? == 0, false)
            }
            Kind::Etcd if !self.greeted => (PREFACE, false, true),
            // A message of gRPC is a frame of data that is not empty.
            Kind::Etcd => {
                let length = length_of(bytes, 0, 3)?;
                (9 + length, *bytes.get(3)? == 0 && length > 0, false)
            }
        };
        if bytes.len() < length || length == 0 {
            return None;
        }
        self.greeted |= hello;
        Some((length, asks))
    }
}

/// How long the first words of a client are in HTTP/2.
const PREFACE: usize = 24;

/// A length of so many bytes, the highest first.
fn length_of(bytes: &[u8], from: usize, count: usize) -> Option<usize> {
    let bytes = bytes.get(from..from + count)?;
    Some(bytes.iter().fold(0, |sum, byte| (sum << 8) + usize::from(*byte)))
}

/// The text up to the end of the line, and how much of `bytes` it takes.
fn text(bytes: &[u8]) -> Option<(&str, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(&bytes[..end]).unwrap_or_default(), end + 2))
}

/// The length of a command of Redis: an array of texts.
fn command(bytes: &[u8]) -> Option<usize> {
    let (head, mut at) = text(bytes)?;
    let Some(parts) = head.strip_prefix('*') else { return Some(at) };
    for _ in 0..parts.parse().unwrap_or(0) {
        let (head, length) = text(bytes.get(at..)?)?;
        let body: usize = head.strip_prefix('$')?.parse().ok()?;
        at += length + body + 2;
    }
    Some(at)
}

/// The length of a command of memcached: a line, and what it stores.
fn line(bytes: &[u8]) -> Option<usize> {
    let (head, length) = text(bytes)?;
    let words: Vec<&str> = head.split(' ').collect();
    let stored = match words.first() {
        Some(&("set" | "add" | "replace" | "append" | "prepend" | "cas")) => words.get(4),
        Some(&"ms") => words.get(2),
        _ => None,
    };
    let stored = stored.and_then(|length| length.parse::<usize>().ok());
    Some(length + stored.map_or(0, |stored| stored + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(kind: Kind, bytes: &[u8]) -> u64 {
        let whole = Frames::of(kind).count(bytes);
        let mut frames = Frames::of(kind);
        let split: u64 = bytes.iter().map(|byte| frames.count(&[*byte])).sum();
        assert_eq!(whole, split, "however it arrives");
        assert!(frames.rest.is_empty(), "{:?}", frames.rest);
        whole
    }

    #[test]
    fn requests_are_counted_in_every_protocol() {
        let redis = b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(counted(Kind::Redis, redis), 2);
        assert_eq!(counted(Kind::ZooKeeper, b"\0\0\0\x02ab\0\0\0\x01c"), 2);
        assert_eq!(
            counted(Kind::Memcached, b"add a 0 4 3\r\nget\r\nmg b v\r\nms c 2\r\nmd\r\n"),
            3
        );
        let postgres = b"\0\0\0\x08SSL!\0\0\0\x0cuserxxxx\
            P\0\0\0\x05pB\0\0\0\x04S\0\0\0\x04Q\0\0\0\x06a\0X\0\0\0\x04";
        assert_eq!(counted(Kind::Postgres, postgres), 2);
        assert_eq!(counted(Kind::MariaDb, b"\x02\0\0\x01hi\x03\0\0\0abc\x01\0\0\0d"), 2);
        let etcd = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
            \0\0\x01\x01\x04\0\0\0\x01h\0\0\x02\0\x01\0\0\0\x01ab\0\0\0\0\x01\0\0\0\x01";
        assert_eq!(counted(Kind::Etcd, etcd), 1);
    }
}
