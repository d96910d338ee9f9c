//! The protocol of Redis.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A connection.
#[derive(Debug)]
pub struct Resp {
    stream: BufReader<TcpStream>,
}

/// A reply; an error reply is returned as `Err` instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Null.
    Nil,
    /// A number.
    Number(i64),
    /// Text.
    Text(String),
    /// An array.
    List(Vec<Reply>),
}

impl Reply {
    /// Its text, if it is text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Its number, if it is a number.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Its elements, if it is an array.
    #[must_use]
    pub fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(parts) => Some(parts),
            _ => None,
        }
    }
}

impl Resp {
    /// Connects to a port of this machine.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(port: u16) -> Result<Self> {
        Ok(Self { stream: BufReader::new(super::connect(port)?) })
    }

    /// Sends a command and returns the answer.
    ///
    /// # Errors
    /// With the server's error, or when it does not answer within two seconds.
    pub fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read()
    }

    /// One section of `INFO`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn info(&mut self, section: &str) -> Result<String> {
        let said = self.ask(&["INFO", section])?;
        Ok(said.text().context("text")?.to_owned())
    }

    /// The next message from the server, whether it answers a request or not.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn read(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").context("the connection was closed")?;
        let (kind, rest) = line.split_at_checked(1).context("an empty answer")?;
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => bail!("{rest}"),
            ":" => Reply::Number(rest.parse()?),
            "$" => match rest.parse::<i64>()?.try_into() {
                Ok(length) => {
                    let mut bytes = vec![0; length];
                    self.stream.read_exact(&mut bytes)?;
                    self.stream.read_exact(&mut [0; 2])?;
                    Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                Err(_) => Reply::Nil,
            },
            "*" => match usize::try_from(rest.parse::<i64>()?) {
                Ok(count) => Reply::List((0..count).map(|_| self.read()).collect::<Result<_>>()?),
                Err(_) => Reply::Nil,
            },
            _ => bail!("not an answer of Redis: {line:?}"),
        })
    }
}
