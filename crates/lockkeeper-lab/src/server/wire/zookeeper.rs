//! The protocol of ZooKeeper, for one session that does a few things by hand.

use anyhow::{Context, Result, bail, ensure};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Every right on a node.
const EVERYTHING: i32 = 31;
/// The answer for a node that does not exist.
const NO_NODE: i32 = -101;
/// The number of a message that answers no request.
const EVENT: i32 = -1;

/// A session. It sends no heartbeats, and so ends with its timeout.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    last: i32,
    events: VecDeque<String>,
}

impl Session {
    /// Opens one with this timeout, on a port of this machine.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn open(port: u16, timeout: Duration) -> Result<Self> {
        let stream = super::connect(port)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut session = Self { stream, last: 0, events: VecDeque::new() };
        let mut hello = vec![0; 12];
        hello.extend(i32::try_from(timeout.as_millis())?.to_be_bytes());
        hello.extend([0; 8]);
        // An empty password.
        hello.extend(16_i32.to_be_bytes());
        hello.extend([0; 16]);
        session.send(&hello)?;
        session.receive()?;
        Ok(session)
    }

    /// Creates a node; with `ephemeral` it ends with the session, with `numbered` it gets a number
    /// behind its name. Returns its path.
    ///
    /// # Errors
    /// With the number of the server's error.
    pub fn create(&mut self, path: &str, ephemeral: bool, numbered: bool) -> Result<String> {
        let mut body = [text(path)?, text("")?].concat();
        body.extend([1_i32.to_be_bytes(), EVERYTHING.to_be_bytes()].concat());
        body.extend([text("world")?, text("anyone")?].concat());
        body.extend((i32::from(ephemeral) + 2 * i32::from(numbered)).to_be_bytes());
        let (error, made) = self.call(1, &body)?;
        ensure!(error == 0, "creating {path} gave {error}");
        said(&made)
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// With the number of the server's error.
    pub fn delete(&mut self, path: &str) -> Result<()> {
        let (error, _) = self.call(2, &[text(path)?, (-1_i32).to_be_bytes().to_vec()].concat())?;
        ensure!(error == 0, "deleting {path} gave {error}");
        Ok(())
    }

    /// Sets a watch on a node, and returns whether the node exists.
    ///
    /// # Errors
    /// With the number of the server's error.
    pub fn watch(&mut self, path: &str) -> Result<bool> {
        match self.call(3, &[text(path)?, vec![1]].concat())? {
            (0, _) => Ok(true),
            (NO_NODE, _) => Ok(false),
            (error, _) => bail!("watching {path} gave {error}"),
        }
    }

    /// The names of the children, sorted; none if there is no such node.
    ///
    /// # Errors
    /// With the number of the server's error.
    pub fn children(&mut self, path: &str) -> Result<Vec<String>> {
        let (error, answer) = self.call(8, &[text(path)?, vec![0]].concat())?;
        if error == NO_NODE {
            return Ok(Vec::new());
        }
        ensure!(error == 0, "listing {path} gave {error}");
        let mut rest = answer.get(4..).context("no list")?;
        let mut children = Vec::new();
        while !rest.is_empty() {
            let child = said(rest)?;
            rest = rest.get(4 + child.len()..).context("a short list")?;
            children.push(child);
        }
        children.sort();
        Ok(children)
    }

    /// The path of the next node that a watch reports, if one does within this time.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn event(&mut self, within: Duration) -> Result<Option<String>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        self.stream.set_read_timeout(Some(within))?;
        let received = self.receive();
        self.stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        match received {
            Ok(packet) => Ok(Some(event(&packet)?)),
            Err(error) => match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
                Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Ends the session, and with it its ephemeral nodes, at once.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn close(mut self) -> Result<()> {
        self.call(-11, &[]).map(drop)
    }

    /// Sends a request; returns the number of the error, and what came behind the header.
    fn call(&mut self, code: i32, body: &[u8]) -> Result<(i32, Vec<u8>)> {
        self.last += 1;
        let head = [self.last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send(&[&head, body].concat())?;
        loop {
            let answer = self.receive()?;
            if number(&answer, 0)? == EVENT {
                self.events.push_back(event(&answer)?);
                continue;
            }
            ensure!(number(&answer, 0)? == self.last, "an answer out of turn");
            return Ok((number(&answer, 12)?, answer.get(16..).context("no header")?.to_vec()));
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let length = i32::try_from(bytes.len())?.to_be_bytes();
        Ok(self.stream.write_all(&[&length, bytes].concat())?)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut packet = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        self.stream.read_exact(&mut packet)?;
        Ok(packet)
    }
}

/// One of the numbers that the server tells operators (`mntr`).
///
/// # Errors
/// When there is no such number.
pub fn metric(port: u16, name: &str) -> Result<u64> {
    let said = super::line::ask(port, "mntr")?;
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    Ok(line.with_context(|| format!("there is no {name}"))?.trim().parse()?)
}

/// Whether a piece of what a client sends begins with a request of this number that sets a watch.
#[must_use]
pub fn sets_watch(piece: &[u8]) -> bool {
    let mut rest = piece;
    while let Ok(length) = number(rest, 0) {
        let Some(packet) = usize::try_from(length).ok().and_then(|it| rest.get(4..4 + it)) else {
            return false;
        };
        // `exists` and `getData`; the last byte says whether to watch.
        if matches!(number(packet, 4), Ok(3 | 4)) && packet.last() == Some(&1) {
            return true;
        }
        rest = &rest[4 + packet.len()..];
    }
    false
}

fn number(bytes: &[u8], at: usize) -> Result<i32> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk()).context("a short answer")?;
    Ok(i32::from_be_bytes(*four))
}

fn event(packet: &[u8]) -> Result<String> {
    // Behind the header: the kind, the state of the session, the path.
    said(packet.get(24..).context("a short event")?)
}

fn text(text: &str) -> Result<Vec<u8>> {
    Ok([&i32::try_from(text.len())?.to_be_bytes(), text.as_bytes()].concat())
}

/// The text that an answer begins with.
fn said(answer: &[u8]) -> Result<String> {
    let length = usize::try_from(number(answer, 0)?)?;
    let bytes = answer.get(4..4 + length).context("a short text")?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
