//! The protocol of MariaDB and MySQL, for one query of the user `lockkeeper`, without a password.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::TcpStream;

/// `PROTOCOL_41`, `SECURE_CONNECTION`, `CONNECT_WITH_DB`, `PLUGIN_AUTH`.
const ABILITIES: u32 = 0x0000_0200 | 0x0000_8000 | 0x0000_0008 | 0x0008_0000;

/// The first column of each row.
///
/// # Errors
/// With the server's error, or when it does not answer.
pub fn query(port: u16, sql: &str) -> Result<Vec<String>> {
    let mut stream = super::connect(port)?;
    let (_, greeting) = receive(&mut stream)?;
    if greeting.first() != Some(&10) {
        bail!("not a greeting of MariaDB: {}", String::from_utf8_lossy(&greeting));
    }
    let mut hello = ABILITIES.to_le_bytes().to_vec();
    hello.extend((1_u32 << 24).to_le_bytes());
    // The character set is utf8mb4.
    hello.push(45);
    hello.extend([0; 23]);
    hello.extend(b"lockkeeper\0\0lockkeeper\0mysql_native_password\0");
    send(&mut stream, 1, &hello)?;
    expect_ok(&mut stream)?;
    send(&mut stream, 0, &[b"\x03", sql.as_bytes()].concat())?;
    let (_, head) = receive(&mut stream)?;
    let columns = match head.first().context("an empty answer")? {
        0 => return Ok(Vec::new()),
        columns => *columns,
    };
    // One packet describes each column, and one marks the end of the columns.
    for _ in 0..=columns {
        receive(&mut stream)?;
    }
    let mut rows = Vec::new();
    loop {
        let (_, row) = receive(&mut stream)?;
        match row.first().context("an empty row")? {
            0xfe if row.len() < 9 => return Ok(rows),
            0xfb => rows.push(String::new()),
            length => {
                let value = row.get(1..=usize::from(*length)).context("a short value")?;
                rows.push(String::from_utf8_lossy(value).into_owned());
            }
        }
    }
}

fn expect_ok(stream: &mut TcpStream) -> Result<()> {
    match receive(stream)? {
        (_, body) if body.first() == Some(&0) => Ok(()),
        (number, body) if body.first() == Some(&0xfe) => {
            // The server switches to another authentication method; the password is empty.
            send(stream, number + 1, &[])?;
            let (_, body) = receive(stream)?;
            if body.first() == Some(&0) { Ok(()) } else { bail!("mariadb does not let us in") }
        }
        (_, body) => bail!("mariadb said {}", String::from_utf8_lossy(&body)),
    }
}

fn receive(stream: &mut TcpStream) -> Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
    let mut body = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut body)?;
    if body.first() == Some(&0xff) {
        bail!("mariadb said {}", String::from_utf8_lossy(body.get(3..).unwrap_or_default()));
    }
    Ok((head[3], body))
}

fn send(stream: &mut TcpStream, number: u8, body: &[u8]) -> Result<()> {
    let mut packet = u32::try_from(body.len())?.to_le_bytes()[..3].to_vec();
    packet.push(number);
    packet.extend(body);
    stream.write_all(&packet)?;
    Ok(())
}
