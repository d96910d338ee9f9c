//! ZooKeeper's protocol by hand, for what only others do.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What may be done with a node.
const EVERYTHING: i32 = 31;
const READ: i32 = 1;

/// A session of its own.
pub(crate) struct Raw {
    stream: TcpStream,
    last: i32,
}

impl Raw {
    pub(crate) fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut raw = Self { stream, last: 0 };
        let mut hello = vec![0; 12];
        hello.extend(30_000_i32.to_be_bytes());
        hello.extend([0; 12]);
        raw.send(&hello)?;
        raw.receive()?;
        Ok(raw)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let mut packet = i32::try_from(bytes.len())?.to_be_bytes().to_vec();
        packet.extend(bytes);
        Ok(self.stream.write_all(&packet)?)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut packet = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        self.stream.read_exact(&mut packet)?;
        Ok(packet)
    }

    /// Sends a request and returns the number of the error, and what came behind the header.
    fn call(&mut self, code: i32, body: &[u8]) -> Result<(i32, Vec<u8>)> {
        self.last += 1;
        let head = [self.last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send(&[&head, body].concat())?;
        let answer = self.receive()?;
        let (head, rest) = answer.split_at_checked(16).context("no header")?;
        let number =
            |at: usize| i32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        ensure!(number(0) == self.last, "an answer out of turn");
        Ok((number(12), rest.to_vec()))
    }

    /// Makes a node that ends with this session, or one that stays.
    pub(crate) fn create(&mut self, path: &str, ephemeral: bool) -> Result<()> {
        self.make(path, i32::from(ephemeral), EVERYTHING).map(drop)
    }

    /// Makes a node that ends with this session, with a number behind it; returns where it is.
    pub(crate) fn create_numbered(&mut self, path: &str) -> Result<String> {
        self.make(path, 3, EVERYTHING)
    }

    /// Makes a node that stays, which everyone may read and nobody may make others below.
    pub(crate) fn create_closed(&mut self, path: &str) -> Result<()> {
        self.make(path, 0, READ).map(drop)
    }

    fn make(&mut self, path: &str, flags: i32, rights: i32) -> Result<String> {
        let mut body = text(path)?;
        body.extend(text("someone else")?);
        body.extend(1_i32.to_be_bytes());
        body.extend(rights.to_be_bytes());
        body.extend([text("world")?, text("anyone")?].concat());
        body.extend(flags.to_be_bytes());
        let (error, made) = self.call(1, &body)?;
        ensure!(error == 0, "creating {path} gave {error}");
        said(&made)
    }

    pub(crate) fn write(&mut self, path: &str, data: &str) -> Result<()> {
        let body = [text(path)?, text(data)?, (-1_i32).to_be_bytes().to_vec()].concat();
        let (error, _) = self.call(5, &body)?;
        ensure!(error == 0, "writing to {path} gave {error}");
        Ok(())
    }

    pub(crate) fn read(&mut self, path: &str) -> Result<String> {
        let (error, answer) = self.call(4, &[text(path)?, vec![0]].concat())?;
        ensure!(error == 0, "reading {path} gave {error}");
        said(&answer)
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<()> {
        let (error, _) = self.call(2, &[text(path)?, (-1_i32).to_be_bytes().to_vec()].concat())?;
        ensure!(error == 0, "deleting {path} gave {error}");
        Ok(())
    }

    pub(crate) fn children(&mut self, path: &str) -> Result<Vec<String>> {
        let (error, answer) = self.call(8, &[text(path)?, vec![0]].concat())?;
        ensure!(error == 0, "listing {path} gave {error}");
        let mut rest = answer.get(4..).context("no list")?;
        let mut children = Vec::new();
        while let Some((length, tail)) = rest.split_first_chunk() {
            let length = usize::try_from(i32::from_be_bytes(*length))?;
            children
                .push(String::from_utf8_lossy(tail.get(..length).context("short")?).into_owned());
            rest = &tail[length..];
        }
        Ok(children)
    }
}

fn text(text: &str) -> Result<Vec<u8>> {
    Ok([&i32::try_from(text.len())?.to_be_bytes(), text.as_bytes()].concat())
}

/// The text that an answer begins with.
fn said(answer: &[u8]) -> Result<String> {
    let (length, rest) = answer.split_first_chunk().context("no text")?;
    let length = usize::try_from(i32::from_be_bytes(*length))?;
    Ok(String::from_utf8_lossy(rest.get(..length).context("short")?).into_owned())
}

/// What the server says to a word of four letters.
pub(crate) fn word(address: &str, word: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(word.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// One of the numbers that `mntr` tells.
pub(crate) fn metric(address: &str, name: &str) -> Result<u64> {
    let text = word(address, "mntr")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    Ok(line.with_context(|| format!("there is no {name}"))?.parse()?)
}
