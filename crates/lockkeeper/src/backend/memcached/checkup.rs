//! What an operator should know of each server: version, eviction, clock.

use super::client::Client;
use crate::backend::{Finding, Moment, Subject};
use crate::error::Result;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) async fn checkup(client: &Client) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for server in 0..client.servers() {
        let asked = SystemTime::now();
        let at = client.shown(server);
        let findings = match ask(client, server).await {
            Ok((stats, settings)) => of_server(&stats, &settings, asked),
            Err(failure) => {
                let text = failure.explain(&at).to_string();
                let advice = "names that are kept there cannot be locked until it is back";
                vec![Finding::problem(Subject::Connection, text, advice)]
            }
        };
        let several = client.servers() > 1;
        found.extend(findings.into_iter().map(|finding| match several {
            true => finding.at(at.clone()),
            false => finding,
        }));
    }
    Ok(found)
}

pub(super) async fn round_trips(client: &Client, count: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let sent = Moment::now();
        client.ping(0).await.map_err(|failure| failure.explain(&client.shown(0)))?;
        took.push(Moment::now().since(sent));
    }
    Ok(took)
}

type Stats = Vec<(String, String)>;

async fn ask(client: &Client, server: usize) -> Result<(Stats, Stats), super::error::Failure> {
    Ok((client.stats(server, "stats").await?, client.stats(server, "stats settings").await?))
}

fn of_server(stats: &Stats, settings: &Stats, asked: SystemTime) -> Vec<Finding> {
    let find = |all: &Stats, name: &str| {
        let found = all.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let number = |name| find(stats, name).parse::<u64>().unwrap_or_default();
    let mut found = vec![
        Finding::fine(Subject::Version, format!("memcached {}", find(stats, "version"))),
        Finding::warning(
            Subject::Persistence,
            "nothing is written to disk: after a restart others are granted what is still held",
            "check fencing tokens, which grow all the same, or use another store",
        ),
    ];
    let (evictions, megabytes) = (number("evictions"), number("limit_maxbytes") / (1 << 20));
    found.push(match find(settings, "evictions").as_str() {
        "off" => Finding::fine(Subject::Eviction, "no lock is thrown away (-M)"),
        _ if evictions > 0 => Finding::problem(
            Subject::Eviction,
            format!("{evictions} items were thrown away to make room in {megabytes} MiB"),
            "give the locks a memcached of their own, or more memory (-m)",
        ),
        _ => Finding::warning(
            Subject::Eviction,
            format!("locks can be thrown away when {megabytes} MiB are full; none was so far"),
            "give the locks a memcached of their own",
        ),
    });
    found.push(Finding::fine(Subject::Replication, "memcached has no replicas"));
    if let Ok(seconds @ 1..) = find(stats, "time").parse() {
        let store = UNIX_EPOCH + Duration::from_secs(seconds);
        found.push(Finding::clock(store, asked, Duration::from_secs(1)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Verdict;

    #[test]
    fn evictions_that_happened_are_a_problem() {
        let stats = |pairs: &[(&str, &str)]| -> Stats {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let verdict = |evictions: &str, setting: &str| {
            let (stats, settings) =
                (stats(&[("evictions", evictions)]), stats(&[("evictions", setting)]));
            let found = of_server(&stats, &settings, SystemTime::now());
            found.into_iter().find(|finding| finding.subject == Subject::Eviction).unwrap().verdict
        };
        assert_eq!(verdict("0", "on"), Verdict::Warning);
        assert_eq!(verdict("5", "on"), Verdict::Problem);
        assert_eq!(verdict("0", "off"), Verdict::Fine);
    }
}
