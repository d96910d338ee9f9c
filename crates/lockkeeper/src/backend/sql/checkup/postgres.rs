//! A PostgreSQL server.

use super::{Examined, clock, no_eviction};
use crate::backend::sql::client::{PostgresConnector, first_columns};
use crate::backend::{Finding, Moment, Subject};
use crate::error::Result;
use async_trait::async_trait;
use std::time::{Duration, SystemTime};

/// All of it in one text, in this order.
const ABOUT: &str = "SELECT concat_ws('|', current_setting('server_version'), \
    current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery()::text, \
    (SELECT count(*) FROM pg_stat_replication)::text, \
    current_setting('synchronous_standby_names') <> '', \
    extract(epoch FROM clock_timestamp())::text)";

#[async_trait]
impl Examined for PostgresConnector {
    async fn checkup(&self) -> Result<Vec<Finding>> {
        let explain = |failure: crate::backend::sql::error::Failure| failure.explain(self.shown());
        let (connection, _) = self.connect(Some(self.timeout())).await.map_err(explain)?;
        let asked = SystemTime::now();
        let answer = connection.simple(ABOUT, self.timeout()).await.map_err(explain)?;
        let about = first_columns(answer).into_iter().next().flatten().unwrap_or_default();
        Ok(findings(&about, self.has_pooler(), asked))
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        let explain = |failure: crate::backend::sql::error::Failure| failure.explain(self.shown());
        let (connection, _) = self.connect(Some(self.timeout())).await.map_err(explain)?;
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let sent = Moment::now();
            connection.simple("SELECT 1", self.timeout()).await.map_err(explain)?;
            took.push(Moment::now().since(sent));
        }
        Ok(took)
    }
}

fn findings(about: &str, pooler: bool, asked: SystemTime) -> Vec<Finding> {
    let mut words = about.split('|');
    let mut next = || words.next().unwrap_or_default();
    let (version, fsync, commit) = (next(), next(), next());
    let (standby, replicas, synchronous, seconds) = (next(), next(), next(), next());
    let through = if pooler { ", through a pooler" } else { "" };
    let mut found = vec![Finding::fine(Subject::Version, format!("PostgreSQL {version}{through}"))];
    found.push(match (fsync, commit) {
        ("off", _) => Finding::problem(
            Subject::Persistence,
            "fsync is off: a crash can destroy the database, and the locks with it",
            "set fsync to on",
        ),
        (_, "off") => Finding::warning(
            Subject::Persistence,
            "synchronous_commit is off: a crash forgets the last grants, and others get them",
            "set synchronous_commit to on for this user or database",
        ),
        _ => Finding::fine(Subject::Persistence, "each grant is on the disk before its answer"),
    });
    found.push(match (standby, replicas) {
        ("true" | "t", _) => Finding::problem(
            Subject::Replication,
            "this is a standby, which takes no locks",
            "name the primary in the URL",
        ),
        (_, "0") => Finding::fine(Subject::Replication, "a primary without standbys"),
        (_, number) if matches!(synchronous, "true" | "t") => Finding::fine(
            Subject::Replication,
            format!("a primary with {number} standbys, and commits wait for one"),
        ),
        (_, number) => Finding::warning(
            Subject::Replication,
            format!("a primary with {number} standbys: a failover can forget the last grants"),
            "set synchronous_standby_names, or say ?standby=URL, and check fencing tokens",
        ),
    });
    found.push(no_eviction());
    found.extend(clock(seconds, asked));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Verdict::{self, *};

    #[test]
    fn what_a_server_says_is_judged() {
        let verdicts = |about: &str| -> Vec<Verdict> {
            let about = format!("15.4|{about}|0");
            let found = findings(&about, false, SystemTime::now());
            found[1..3].iter().map(|finding| finding.verdict).collect()
        };
        assert_eq!(verdicts("on|on|false|0|f"), [Fine, Fine]);
        assert_eq!(verdicts("off|on|false|0|f"), [Problem, Fine]);
        assert_eq!(verdicts("on|off|false|2|f"), [Warning, Warning]);
        assert_eq!(verdicts("on|on|false|2|t"), [Fine, Fine]);
        assert_eq!(verdicts("on|on|true|0|f"), [Fine, Problem]);
    }
}
