//! A MariaDB or MySQL server.

use super::{Examined, clock, no_eviction};
use crate::backend::sql::client::MysqlConnector;
use crate::backend::{Finding, Moment, Subject};
use crate::error::Result;
use async_trait::async_trait;
use std::time::{Duration, SystemTime};

/// All of it in one text, in this order.
const ABOUT: &str = "SELECT CONCAT_WS('|', VERSION(), @@innodb_flush_log_at_trx_commit, \
    @@global.read_only, (SELECT COUNT(*) FROM information_schema.processlist \
    WHERE COMMAND LIKE 'Binlog Dump%'), UNIX_TIMESTAMP(SYSDATE(6)))";

#[async_trait]
impl Examined for MysqlConnector {
    async fn checkup(&self) -> Result<Vec<Finding>> {
        let explain = |failure: crate::backend::sql::error::Failure| failure.explain(self.shown());
        let mut connection = self.connect().await.map_err(explain)?;
        let asked = SystemTime::now();
        let answers = connection.run(ABOUT, self.timeout()).await.map_err(explain)?;
        let about = answers.into_iter().flatten().next();
        let about = about.and_then(|row| row.get_opt::<String, _>(0)).and_then(|it| it.ok());
        Ok(findings(&about.unwrap_or_default(), asked))
    }

    async fn round_trips(&self, count: usize) -> Result<Vec<Duration>> {
        let explain = |failure: crate::backend::sql::error::Failure| failure.explain(self.shown());
        let mut connection = self.connect().await.map_err(explain)?;
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let sent = Moment::now();
            connection.run("SELECT 1", self.timeout()).await.map_err(explain)?;
            took.push(Moment::now().since(sent));
        }
        Ok(took)
    }
}

fn findings(about: &str, asked: SystemTime) -> Vec<Finding> {
    let mut words = about.split('|');
    let mut next = || words.next().unwrap_or_default();
    let (version, flush, read_only, replicas, seconds) = (next(), next(), next(), next(), next());
    let name = if version.contains("MariaDB") { "" } else { "MySQL " };
    let mut found = vec![Finding::fine(Subject::Version, format!("{name}{version}"))];
    found.push(match flush {
        "1" => Finding::fine(Subject::Persistence, "each grant is on the disk before its answer"),
        other => Finding::warning(
            Subject::Persistence,
            format!(
                "innodb_flush_log_at_trx_commit is {other}: a crash forgets the last grants, and \
                 others get them"
            ),
            "set innodb_flush_log_at_trx_commit to 1",
        ),
    });
    found.push(match (read_only, replicas) {
        ("1", _) => Finding::problem(
            Subject::Replication,
            "this server is read-only, so that it is a replica or being taken out of service",
            "name the primary in the URL",
        ),
        (_, "0") => Finding::fine(Subject::Replication, "no replicas that this user can see"),
        (_, number) => Finding::warning(
            Subject::Replication,
            format!("{number} replicas: a failover can forget the last grants"),
            "say ?standby=URL, and check fencing tokens",
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
            let found = findings(&format!("10.11-MariaDB|{about}|0.5"), SystemTime::now());
            found[1..3].iter().map(|finding| finding.verdict).collect()
        };
        assert_eq!(verdicts("1|0|0"), [Fine, Fine]);
        assert_eq!(verdicts("2|0|1"), [Warning, Warning]);
        assert_eq!(verdicts("1|1|0"), [Fine, Problem]);
        let found = findings("8.0.35|1|0|0|0", SystemTime::now());
        assert_eq!(found[0].text, "MySQL 8.0.35");
        assert_eq!(found.last().unwrap().verdict, Warning, "the clock is of 1970");
    }
}
