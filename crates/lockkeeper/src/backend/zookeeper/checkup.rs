//! What an operator should know of the ensemble: version, and what part each server has.
//!
//! ZooKeeper's protocol for clients tells neither. Each server says both on a connection of its own, when
//! it is sent the word `srvr`, which is allowed unless somebody has forbidden it.

use super::client::Request;
use super::context::Context;
use crate::backend::{Finding, Moment, Subject};
use crate::error::Result;
use futures_util::future::join_all;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest answer that is read.
const LONGEST: u64 = 4096;

pub(super) async fn checkup(context: &Context) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    let options = context.client.options();
    if options.tls.is_some() {
        found.push(Finding::fine(Subject::Version, "not told where connections are encrypted"));
    } else {
        let limit = options.connect_timeout;
        let asked = options.hosts.iter().map(|(host, port)| async move {
            let answer = timeout(limit, srvr(host, *port)).await;
            (format!("{host}:{port}"), answer.ok().and_then(std::io::Result::ok))
        });
        let answers = join_all(asked).await;
        let several = answers.len() > 1;
        for (host, answer) in &answers {
            let findings = of_server(answer.as_deref());
            found.extend(findings.into_iter().map(|finding| match several {
                true => finding.at(host.clone()),
                false => finding,
            }));
        }
    }
    found.push(Finding::fine(
        Subject::Persistence,
        "each grant is in the log of a majority of servers before its answer",
    ));
    found.push(Finding::fine(Subject::Eviction, "ZooKeeper throws nothing away"));
    found.push(Finding::fine(Subject::Clock, "no lock depends on it"));
    Ok(found)
}

pub(super) async fn round_trips(context: &Context, count: usize) -> Result<Vec<Duration>> {
    let session = context.session().await?;
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let sent = Moment::now();
        let answered = session.call(Request::exists("/", false)).await;
        answered.map_err(|failure| context.explain(&failure))?;
        took.push(Moment::now().since(sent));
    }
    Ok(took)
}

async fn srvr(host: &str, port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = Vec::new();
    (&mut stream).take(LONGEST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// What a server's answer says; `None` if there was none.
fn of_server(answer: Option<&str>) -> Vec<Finding> {
    let Some(answer) = answer else {
        let (text, advice) =
            ("the server does not answer", "see that it runs, and that it can be reached");
        return vec![Finding::warning(Subject::Connection, text, advice)];
    };
    let line = |start| answer.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
    let version = line("Zookeeper version:").and_then(|version| version.split([',', '-']).next());
    let Some(version) = version else {
        let advice = "add srvr to 4lw.commands.whitelist";
        return vec![Finding::warning(Subject::Version, "the server does not tell (srvr)", advice)];
    };
    let mut found = vec![Finding::fine(Subject::Version, format!("ZooKeeper {version}"))];
    found.push(match line("Mode:") {
        Some("standalone") => Finding::warning(
            Subject::Replication,
            "one server: while it is down nothing can be locked, and held locks run out",
            "run an ensemble of three servers or five",
        ),
        Some(mode) => Finding::fine(Subject::Replication, mode.to_owned()),
        None => Finding::problem(
            Subject::Replication,
            "the server is in no ensemble now",
            "see that a majority of the servers is up and reach each other",
        ),
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Verdict;

    #[test]
    fn what_a_server_says_of_itself_is_read() {
        let verdicts = |answer| {
            of_server(answer).into_iter().map(|finding| finding.verdict).collect::<Vec<_>>()
        };
        let follower = "Zookeeper version: 3.8.0-5a02a, built on 2022\nMode: follower\n";
        assert_eq!(verdicts(Some(follower)), [Verdict::Fine, Verdict::Fine]);
        assert_eq!(of_server(Some(follower))[0].text, "ZooKeeper 3.8.0");
        let alone = "Zookeeper version: 3.8.0, built on 2022\nMode: standalone\n";
        assert_eq!(verdicts(Some(alone)), [Verdict::Fine, Verdict::Warning]);
        let lost = "Zookeeper version: 3.8.0, built on 2022\n";
        assert_eq!(verdicts(Some(lost)), [Verdict::Fine, Verdict::Problem]);
        let forbidden = "srvr is not executed because it is not in the whitelist.\n";
        assert_eq!(verdicts(Some(forbidden)), [Verdict::Warning]);
        assert_eq!(verdicts(None), [Verdict::Warning]);
    }
}
