//! As much of a Redis client as two locks need.

use lockkeeper::{Error, ErrorKind, Result};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

type Stream = BufStream<TcpStream>;

/// What Redis said: a number, a word, or nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Word(String),
    Number(i64),
}

/// Connections to one server, each of which is given up as soon as an answer is late.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    limit: Duration,
    idle: Mutex<Vec<Stream>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, limit: Duration) -> Self {
        Self { address, limit, idle: Mutex::default() }
    }

    pub(crate) async fn ask(&self, words: &[&str]) -> Result<Reply> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let asking = async {
            let mut stream = match idle {
                Some(stream) => stream,
                None => connect(self.address).await?,
            };
            let reply = talk(&mut stream, words).await?;
            io::Result::Ok((stream, reply))
        };
        match tokio::time::timeout(self.limit, asking).await {
            Ok(Ok((stream, reply))) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
                Ok(reply)
            }
            Ok(Err(error)) => {
                Err(Error::new(ErrorKind::Unavailable, "Redis went away").caused_by(error))
            }
            Err(_) => Err(Error::new(ErrorKind::Unavailable, "Redis did not answer")),
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<Stream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(BufStream::new(stream))
}

async fn talk(stream: &mut Stream, words: &[&str]) -> io::Result<Reply> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let bad = || io::Error::other(format!("not understood: {line}"));
    match line.split_at_checked(1).ok_or_else(bad)? {
        ("+", word) => Ok(Reply::Word(word.to_owned())),
        (":", number) => number.parse().map(Reply::Number).map_err(|_| bad()),
        ("$", "-1") => Ok(Reply::Nil),
        _ => Err(bad()),
    }
}
