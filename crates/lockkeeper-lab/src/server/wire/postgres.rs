//! The protocol of PostgreSQL, for queries of the user `lockkeeper`.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The first column of each row.
///
/// # Errors
/// With the server's error, or when it does not answer.
pub fn query(port: u16, sql: &str) -> Result<Vec<String>> {
    let mut session = Session::open(port)?;
    let rows = session.query(sql)?;
    session.stream.write_all(b"X\0\0\0\x04")?;
    Ok(rows)
}

/// A session, which can keep a transaction open.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
}

impl Session {
    /// Connects to a port of this machine.
    ///
    /// # Errors
    /// With the server's error, or when it does not answer.
    pub fn open(port: u16) -> Result<Self> {
        let mut stream = super::connect(port)?;
        let mut hello = 196_608_u32.to_be_bytes().to_vec();
        hello.extend(b"user\0lockkeeper\0database\0lockkeeper\0\0");
        stream.write_all(&with_length(&hello)?)?;
        let mut session = Self { stream };
        session.answer()?;
        Ok(session)
    }

    /// The first column of each row.
    ///
    /// # Errors
    /// With the server's error, or when it does not answer within two seconds.
    pub fn query(&mut self, sql: &str) -> Result<Vec<String>> {
        self.ask(sql)?;
        self.answer()
    }

    /// Sends a query without waiting for its answer.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn ask(&mut self, sql: &str) -> Result<()> {
        let mut question = b"Q".to_vec();
        question.extend(with_length(&[sql.as_bytes(), b"\0"].concat())?);
        Ok(self.stream.write_all(&question)?)
    }

    /// Reads up to the end of an answer. After an error the session is of no more use.
    fn answer(&mut self) -> Result<Vec<String>> {
        let mut rows = Vec::new();
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; usize::try_from(length)?.checked_sub(4).context("a length")?];
            self.stream.read_exact(&mut body)?;
            match head[0] {
                b'Z' => return Ok(rows),
                b'D' => rows.push(first_column(&body)?),
                b'E' => bail!("{}", String::from_utf8_lossy(&body).replace('\0', " ")),
                b'R' if body != [0; 4] => bail!("postgres asks for a password"),
                _ => {}
            }
        }
    }
}

fn first_column(row: &[u8]) -> Result<String> {
    let length = row.get(2..6).context("a column")?;
    let length = i32::from_be_bytes(length.try_into()?);
    // A null has the length -1.
    let length = usize::try_from(length).unwrap_or(0);
    Ok(String::from_utf8_lossy(row.get(6..6 + length).context("a value")?).into_owned())
}

fn with_length(body: &[u8]) -> Result<Vec<u8>> {
    let mut message = u32::try_from(body.len() + 4)?.to_be_bytes().to_vec();
    message.extend(body);
    Ok(message)
}
