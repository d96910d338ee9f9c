//! Who is at a port, where it is not the server that was looked for.
//!
//! A server of another kind mostly waits for us to say something that it knows, and we wait for its
//! answer. So a keeper that could not be opened asks once more, in the other protocols.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long each of the questions may take: somebody waits for the error.
const EACH: Duration = Duration::from_secs(2);
/// The request for TLS of PostgreSQL, which answers with one letter and logs nothing.
const ASK_POSTGRES: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
/// A line that servers with lines answer, whatever they think of it.
const ASK_LINES: &[u8] = b"PING\r\n\r\n";

/// What the server at a port speaks, if that can be told.
pub(in crate::backend::sql) async fn speaks(host: &str, port: u16) -> Option<&'static str> {
    // Some greet every client; the others are asked.
    for question in [b"".as_slice(), ASK_POSTGRES, ASK_LINES] {
        let connected = tokio::time::timeout(EACH, TcpStream::connect((host, port))).await;
        let stream = connected.ok()?.ok()?;
        if let Some(answer) = ask(stream, question).await {
            return recognize(question, &answer);
        }
    }
    None
}

/// The first bytes of the answer; `None` where there is none in time.
async fn ask(mut stream: TcpStream, question: &[u8]) -> Option<Vec<u8>> {
    let asked = async {
        stream.write_all(question).await.ok()?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer).await.ok().filter(|length| *length > 0)?;
        Some(answer[..length].to_vec())
    };
    tokio::time::timeout(EACH, asked).await.ok().flatten()
}

/// Whose words these are.
fn recognize(question: &[u8], answer: &[u8]) -> Option<&'static str> {
    // The length of the message in three bytes, its number, and the version of the protocol.
    if answer.len() > 4 && answer[3] == 0 && [10, 255].contains(&answer[4]) {
        return Some("MySQL");
    }
    if question == ASK_POSTGRES && matches!(answer, b"S" | b"N") {
        return Some("PostgreSQL");
    }
    let known: [(&[u8], &str); 6] = [
        (b"HTTP/", "HTTP"),
        (b"SSH-", "SSH"),
        (b"+PONG", "Redis"),
        (b"-NOAUTH", "Redis"),
        (b"-DENIED", "Redis"),
        (b"ERROR\r\n", "memcached"),
    ];
    known.into_iter().find(|(start, _)| answer.starts_with(start)).map(|(_, who)| who)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_recognized() {
        for (question, answer, who) in [
            (b"".as_slice(), b"J\0\0\0\x0a10.11.6-MariaDB".as_slice(), Some("MySQL")),
            (b"", b"E\0\0\0\xff\x10\x04Too many connections", Some("MySQL")),
            (b"", b"SSH-2.0-OpenSSH_9.2", Some("SSH")),
            (ASK_POSTGRES, b"N", Some("PostgreSQL")),
            (ASK_LINES, b"N", None),
            (ASK_LINES, b"+PONG\r\n", Some("Redis")),
            (ASK_LINES, b"HTTP/1.1 400 Bad Request", Some("HTTP")),
            (ASK_LINES, b"who knows", None),
        ] {
            assert_eq!(recognize(question, answer), who, "{answer:?}");
        }
    }
}
