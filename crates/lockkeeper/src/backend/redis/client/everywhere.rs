//! What goes to every server that has keys: a policy to check, keys to list, run ids to compare.
//!
//! Outside a cluster that is one server, and the same as any command.

use super::node::Delivery;
use super::{Client, Servers};
use crate::backend::redis::error::{self, Recovery};
use crate::backend::support::list::no_page;
use crate::backend::support::pace::Pace;
use crate::error::Result;
use futures_util::future::{FutureExt, join_all};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use std::time::Instant;

impl Client {
    /// Sends a command to every server that has keys of its own. Those of a cluster that do not
    /// answer are left out, unless none does.
    pub(crate) async fn everywhere(&self, command: &Cmd) -> Result<Vec<Value>> {
        let cluster = match &self.servers {
            Servers::One(_) => return Ok(vec![self.command(None, command).await?]),
            Servers::Cluster(cluster) => cluster,
        };
        let explain = |error| self.connector.explain(error);
        let hosts = cluster.primaries().boxed().await.map_err(explain)?;
        let answers = join_all(hosts.iter().map(|host| async move {
            cluster.node(host).send(command.clone(), Delivery::default()).await
        }));
        let (mut found, mut failed) = (Vec::new(), None);
        for answer in answers.await {
            match answer {
                Ok((value, _)) => found.push(value),
                Err(failure) => failed = Some(failure.error),
            }
        }
        match failed {
            Some(error) if found.is_empty() || error::recovery(&error) == Recovery::None => {
                Err(explain(error))
            }
            _ => Ok(found),
        }
    }

    /// Every key that begins with `start`, and is of this type if one is named. Not a snapshot: keys
    /// that come and go meanwhile may be missing, and a key can be found twice. `SCAN`, not `KEYS`: the
    /// server serves others in between, however many keys it has.
    pub(crate) async fn keys(&self, start: &str, kind: Option<&str>) -> Result<Vec<String>> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (keys, next) = self.some_keys(start, kind, after.as_deref(), usize::MAX).await?;
            found.extend(keys);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Some `limit` of those keys, from where `after` left off, and where to go on: the server, and the
    /// cursor that it gave. More than `limit` where the server gave more at once.
    pub(crate) async fn some_keys(
        &self,
        start: &str,
        kind: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>)> {
        let pattern = format!("{}*", literally(start));
        let mut servers = self.every_primary().await?;
        servers.sort_by(|one, other| one.0.cmp(&other.0));
        let mut cursor = "0".to_owned();
        if let Some(after) = after {
            let (there, host) = after.split_once('@').ok_or_else(no_page)?;
            there.parse::<u64>().map_err(|_| no_page())?;
            // A server that is gone took its keys along, or another has them, from the beginning.
            servers.retain(|(name, _)| name.as_str() >= host);
            if servers.first().is_some_and(|(name, _)| name == host) {
                there.clone_into(&mut cursor);
            }
        }
        let mut found = Vec::new();
        // A server answers nobody else while it goes through so many of its keys.
        let mut pace = Pace::new(25, 1000);
        for (host, mut connection) in servers {
            loop {
                if found.len() >= limit {
                    return Ok((found, Some(format!("{cursor}@{host}"))));
                }
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(pace.size());
                if let Some(kind) = kind {
                    scan.arg("TYPE").arg(kind);
                }
                let begun = Instant::now();
                let answer = scan.query_async::<(String, Vec<Vec<u8>>)>(&mut connection).await;
                let (next, keys) = answer.map_err(|error| self.connector.explain(error))?;
                pace.took(begun.elapsed());
                found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok((found, None))
    }

    /// A connection to every server that has keys of its own, and its name.
    async fn every_primary(&self) -> Result<Vec<(String, MultiplexedConnection)>> {
        let explain = |error| self.connector.explain(error);
        match &self.servers {
            Servers::One(node) => {
                let (_, current) = node.current().await.map_err(explain)?;
                Ok(vec![(String::new(), current.connection.clone())])
            }
            Servers::Cluster(cluster) => {
                let mut connections = Vec::new();
                for host in cluster.primaries().boxed().await.map_err(explain)? {
                    let node = cluster.node(&host);
                    let (_, current) = node.current().await.map_err(explain)?;
                    connections
                        .push((format!("{}:{}", host.0, host.1), current.connection.clone()));
                }
                Ok(connections)
            }
        }
    }

    /// The run ids of every server that has keys, in order: another one after each restart, and
    /// after a failover.
    pub(crate) async fn run_ids(&self) -> Result<Vec<String>> {
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let answers = self.everywhere(&info).await?;
        let mut ids: Vec<String> = answers.iter().filter_map(run_id).collect();
        ids.sort();
        Ok(ids)
    }
}

/// `run_id:…` in an answer to INFO.
fn run_id(answer: &Value) -> Option<String> {
    let text: String = redis::from_redis_value_ref(answer).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("run_id:"))?;
    Some(line.trim().to_owned())
}

/// The text as a pattern that matches itself only.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if "*?[]\\^".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
