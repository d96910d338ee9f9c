//! ZooKeeper's protocol by hand, for what only others do.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

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
        let mut body = text(path)?;
        body.extend(text("someone else")?);
        body.extend(1_i32.to_be_bytes());
        body.extend(31_i32.to_be_bytes());
        body.extend([text("world")?, text("anyone")?].concat());
        body.extend(i32::from(ephemeral).to_be_bytes());
        let (error, _) = self.call(1, &body)?;
        ensure!(error == 0, "creating {path} gave {error}");
        Ok(())
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
