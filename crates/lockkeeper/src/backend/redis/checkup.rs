//! What an operator should know of the server: version, persistence, eviction, replication, clock.
//!
//! All of it is in the answer to INFO but how the append-only file is written, and whether snapshots are
//! made. A user that may not ask is told so. In a cluster every primary is asked.

use super::client::Client;
use crate::backend::{Finding, Moment, Subject};
use crate::error::{ErrorKind, Result};
use redis::{Cmd, Value};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) async fn checkup(client: &Client) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    match allowed(client.everywhere(&redis::cmd("INFO")).await)? {
        None => found.push(Finding::warning(
            Subject::Version,
            "this user may not run INFO, so that nothing of the server can be told",
            "let it run INFO, or ask as another user",
        )),
        Some(answers) => {
            let several = answers.len() > 1;
            let fsync = settings(client, "appendfsync").await?;
            let save = settings(client, "save").await?;
            for (index, answer) in answers.iter().enumerate() {
                let text: String = redis::from_redis_value_ref(answer).unwrap_or_default();
                let server = Server {
                    info: Info::read(&text),
                    fsync: fsync.get(index).cloned().flatten(),
                    save: save.get(index).cloned().flatten(),
                    asks_replicas: client.asks_replicas(),
                };
                let findings = server.findings().into_iter();
                let node = |finding: Finding| match several {
                    true => finding.at(format!("primary {} of {}", index + 1, answers.len())),
                    false => finding,
                };
                found.extend(findings.map(node));
            }
        }
    }
    let asked = SystemTime::now();
    let time = allowed(client.command(None, &redis::cmd("TIME")).await)?;
    let time = time.and_then(|time| redis::from_redis_value::<(u64, u64)>(time).ok());
    if let Some((seconds, micros)) = time {
        let store = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros);
        found.push(Finding::clock(store, asked, Duration::ZERO));
    }
    Ok(found)
}

pub(super) async fn round_trips(client: &Client, count: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let sent = Moment::now();
        client.command(None, &redis::cmd("PING")).await?;
        took.push(Moment::now().since(sent));
    }
    Ok(took)
}

/// A setting at each server, where it is told.
async fn settings(client: &Client, name: &str) -> Result<Vec<Option<String>>> {
    let mut get: Cmd = redis::cmd("CONFIG");
    get.arg("GET").arg(name);
    let answers = allowed(client.everywhere(&get).await)?.unwrap_or_default();
    let value = |answer: &Value| match answer {
        Value::Map(pairs) => redis::from_redis_value_ref(&pairs.first()?.1).ok(),
        Value::Array(parts) => redis::from_redis_value_ref(parts.get(1)?).ok(),
        _ => None,
    };
    Ok(answers.iter().map(value).collect())
}

/// The answer, or none where the server does not let us ask.
fn allowed<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Store) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The lines of INFO.
#[derive(Debug, Default)]
struct Info(HashMap<String, String>);

impl Info {
    fn read(text: &str) -> Self {
        let pair = |line: &str| {
            let (key, value) = line.trim().split_once(':')?;
            Some((key.to_owned(), value.to_owned()))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    fn number(&self, key: &str) -> u64 {
        self.get(key).parse().unwrap_or_default()
    }
}

/// What is known of a server.
#[derive(Debug, Default)]
struct Server {
    info: Info,
    fsync: Option<String>,
    save: Option<String>,
    asks_replicas: bool,
}

impl Server {
    fn findings(&self) -> Vec<Finding> {
        vec![self.version(), self.persistence(), self.eviction(), self.replication()]
    }

    fn version(&self) -> Finding {
        let info = &self.info;
        let (name, version) = match info.get("valkey_version") {
            "" => ("Redis", info.get("redis_version")),
            version => ("Valkey", version),
        };
        let hours = info.number("uptime_in_seconds") / 3600;
        let up = if hours == 0 { "less than an hour".to_owned() } else { format!("{hours}h") };
        Finding::fine(Subject::Version, format!("{name} {version}, up for {up}"))
    }

    fn persistence(&self) -> Finding {
        let info = &self.info;
        let failed = |key| !matches!(info.get(key), "" | "ok");
        if failed("aof_last_write_status") || failed("rdb_last_bgsave_status") {
            return Finding::problem(
                Subject::Persistence,
                "the server cannot write to its disk, and refuses what changes anything",
                "look into its log, and make room on the disk",
            );
        }
        let forgets = "after a restart others are granted what is still held";
        match (info.get("aof_enabled"), self.fsync.as_deref()) {
            ("1", Some("always")) => {
                Finding::fine(Subject::Persistence, "each write is on the disk before its answer")
            }
            ("1", Some("no")) => Finding::warning(
                Subject::Persistence,
                format!(
                    "append-only file, written when the system likes (appendfsync no): {forgets}"
                ),
                "set appendfsync to everysec or always, and check fencing tokens",
            ),
            ("1", _) => Finding::fine(
                Subject::Persistence,
                "append-only file, written once a second: a crash can forget the grants of the last \
                 second",
            ),
            _ if self.save.as_deref() == Some("") => Finding::warning(
                Subject::Persistence,
                format!("nothing is written to disk: {forgets}"),
                "set appendonly to yes, and check fencing tokens, which grow all the same",
            ),
            _ => Finding::warning(
                Subject::Persistence,
                format!("snapshots at most: {forgets}, if it was granted since the last one"),
                "set appendonly to yes, and check fencing tokens, which grow all the same",
            ),
        }
    }

    fn eviction(&self) -> Finding {
        let policy = match self.info.get("maxmemory_policy") {
            "" => {
                return Finding::warning(Subject::Eviction, "not told", "look at maxmemory-policy");
            }
            policy => policy,
        };
        if policy == "noeviction" {
            return Finding::fine(Subject::Eviction, "no lock is thrown away (noeviction)");
        }
        let limit = match self.info.number("maxmemory") {
            0 => "it has no limit now".to_owned(),
            _ => format!("its limit is {}", self.info.get("maxmemory_human")),
        };
        Finding::problem(
            Subject::Eviction,
            format!("locks can be thrown away when memory is full ({policy}; {limit})"),
            "set maxmemory-policy to noeviction",
        )
    }

    fn replication(&self) -> Finding {
        let info = &self.info;
        if info.get("role") == "slave" {
            let (host, port) = (info.get("master_host"), info.get("master_port"));
            return Finding::problem(
                Subject::Replication,
                format!("this is a replica of {host}:{port}, which takes no locks"),
                "name the primary in the URL, or use redis+sentinel://",
            );
        }
        match info.number("connected_slaves") {
            0 => Finding::fine(Subject::Replication, "a primary without replicas"),
            number if self.asks_replicas => Finding::fine(
                Subject::Replication,
                format!("a primary with {number} replicas, which grants wait for (?replicas)"),
            ),
            number => Finding::warning(
                Subject::Replication,
                format!("a primary with {number} replicas: a failover can forget the last grants"),
                "say ?replicas=1 or more in the URL, and check fencing tokens, which grow all the same",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Verdict;

    fn server(info: &str, fsync: Option<&str>, save: Option<&str>) -> Server {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let info = Info::read(&info.replace(' ', "\r\n"));
        Server { info, fsync: owned(fsync), save: owned(save), asks_replicas: false }
    }

    #[test]
    fn what_a_restart_forgets_is_told_apart() {
        let verdict = |info, fsync, save| server(info, fsync, save).persistence().verdict;
        assert_eq!(verdict("aof_enabled:1", Some("always"), Some("")), Verdict::Fine);
        assert_eq!(verdict("aof_enabled:1", Some("everysec"), Some("")), Verdict::Fine);
        assert_eq!(verdict("aof_enabled:1", Some("no"), Some("")), Verdict::Warning);
        assert_eq!(verdict("aof_enabled:0", Some("everysec"), Some("")), Verdict::Warning);
        assert_eq!(verdict("aof_enabled:0", None, Some("3600 1")), Verdict::Warning);
        let full = "aof_enabled:1 aof_last_write_status:err";
        assert_eq!(verdict(full, Some("always"), None), Verdict::Problem);
        let nothing = server("aof_enabled:0", None, Some("")).persistence();
        assert!(nothing.text.starts_with("nothing is written"), "{nothing}");
    }

    #[test]
    fn a_server_that_evicts_and_one_that_takes_no_writes_are_problems() {
        let eviction = |info| server(info, None, None).eviction().verdict;
        assert_eq!(eviction("maxmemory_policy:noeviction"), Verdict::Fine);
        assert_eq!(eviction("maxmemory:9 maxmemory_policy:allkeys-lru"), Verdict::Problem);
        assert_eq!(eviction("maxmemory:0 maxmemory_policy:volatile-ttl"), Verdict::Problem);
        let replication = |info| server(info, None, None).replication();
        assert_eq!(replication("role:slave master_host:h").verdict, Verdict::Problem);
        assert_eq!(replication("role:master connected_slaves:0").verdict, Verdict::Fine);
        assert_eq!(replication("role:master connected_slaves:2").verdict, Verdict::Warning);
        let asked =
            Server { asks_replicas: true, ..server("role:master connected_slaves:2", None, None) };
        assert_eq!(asked.replication().verdict, Verdict::Fine);
    }
}
