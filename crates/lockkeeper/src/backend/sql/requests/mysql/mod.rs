//! The requests to MariaDB and MySQL: texts out, rows and counts in.

mod numbers;
mod prepare;
mod rows;
mod statements;
mod upkeep;

use super::super::client::MysqlClient;
use super::super::error::Failure;
use super::super::queue::{ALONE, Change, Queue, Version};
use super::super::record::{HELD, Seen};
use super::super::schema::Tables;
use super::known::KnownNames;
use super::{Joined, Listed, Listening, Next, Requests, Told};
use crate::backend::Claim;
use crate::backend::sql::checkup::Examined;
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use mysql_async::Row;
use mysql_async::prelude::FromValue;
use prepare::Prepare;
use rows::{record, value};
use statements::{Statements, retake_values};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rights on everything with which one may write to a server that is read-only. MariaDB writes the
/// third either way; the last is MySQL's, and not `CONNECTION ADMIN` of MariaDB.
const UNBOUND: [&str; 5] =
    ["ALL PRIVILEGES", "SUPER", "READ_ONLY ADMIN", "READ ONLY ADMIN", "CONNECTION_ADMIN"];

/// Requests on two tables of a MariaDB or MySQL.
pub(in super::super) struct MysqlRequests {
    client: MysqlClient,
    tables: Tables,
    statements: Statements,
    /// Whether an `INSERT` can say what became of its row, as on MariaDB.
    returns: AtomicBool,
    known: KnownNames,
}

impl MysqlRequests {
    pub(in super::super) fn new(client: MysqlClient, tables: Tables) -> Self {
        let statements = Statements::new(&tables);
        let returns = AtomicBool::new(false);
        Self { client, tables, statements, returns, known: KnownNames::default() }
    }

    /// The first column of the first row of the last answer.
    async fn ask<T: FromValue>(&self, request: &str, again: bool) -> Result<Option<T>, Failure> {
        let answers = self.client.run(request, again).await?;
        Ok(answers.last().and_then(|rows| rows.first()).map(|row| value(row, 0)))
    }

    async fn rows(&self, request: &str) -> Result<Vec<Row>, Failure> {
        Ok(self.client.run(request, true).await?.pop().unwrap_or_default())
    }
}

#[async_trait]
impl Requests for MysqlRequests {
    fn shown(&self) -> &str {
        self.client.connector.shown()
    }

    fn server(&self) -> &dyn Examined {
        &self.client.connector
    }

    async fn take(&self, claim: &Claim, process: &str) -> Result<Option<i64>, Failure> {
        let name = claim.name.as_str();
        if self.known.contains(name) {
            let values = retake_values(claim, process);
            let answered = self.client.execute(&self.statements.retake, &values, false).await?;
            if answered.changed == 0 {
                self.known.forget(name);
                return Ok(None);
            }
            return Ok(i64::try_from(answered.counted).ok());
        }
        let request = self.statements.take(claim, process, self.returns.load(Ordering::Relaxed));
        let taken = self.ask::<Option<i64>>(&request, false).await?.flatten();
        self.known.add(name);
        Ok(taken)
    }

    async fn free(&self, name: &str, id: &str) -> Result<bool, Failure> {
        // Not sent again by the client: a second answer would say that it was not there.
        let values = [name.into(), id.into()];
        Ok(self.client.execute(&self.statements.free, &values, false).await?.changed > 0)
    }

    async fn extend(&self, name: &str, id: &str, ttl: i64) -> Result<bool, Failure> {
        let request = self.statements.extend(name, id, ttl);
        Ok(self.client.run_counted(&request, true).await?.changed > 0)
    }

    async fn confirm(&self, name: &str, id: &str, ticket: i64) -> Result<bool, Failure> {
        let request = self.statements.confirm(name, id, ticket);
        Ok(self.ask::<i64>(&request, true).await?.is_some_and(|changed| changed > 0))
    }

    async fn join(&self, claim: &Claim, process: &str) -> Result<Option<Joined>, Failure> {
        // The common one first, and by itself: each is as short as it can be.
        for request in [Statements::join, Statements::join_alone] {
            let answers =
                self.client.run(&request(&self.statements, claim, process), false).await?;
            if let Some(row) = answers.last().and_then(|rows| rows.first()) {
                let (ticket, place) = (value(row, 0), value(row, 1));
                return Ok(Some(Joined { ticket, place, until_expiry: value(row, 2) }));
            }
        }
        Ok(None)
    }

    async fn read(&self, process: &str, name: &str, id: &str) -> Result<Option<Queue>, Failure> {
        let rows = self.rows(&self.statements.read(name, id)).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let place: i16 = value(first, 4);
        let head = (value(first, 0), value(first, 1), value(first, 2), value(first, 3), place);
        let claims = if place == ALONE {
            vec![(record(first, 5, value(first, 9), HELD), true)]
        } else {
            let filled = rows.iter().filter(|row| value::<Option<i64>>(row, 15).is_some());
            let read = filled.map(|row| {
                (record(row, 17, value(row, 15), value(row, 16)), value::<i64>(row, 27) != 0)
            });
            read.collect()
        };
        Ok(Some(Queue::read(process, head, claims)))
    }

    async fn apply(&self, name: &str, version: Version, change: &Change) -> Result<bool, Failure> {
        let request = self.statements.apply(name, version, change);
        Ok(self.ask::<i64>(&request, false).await?.is_some_and(|changed| changed > 0))
    }

    async fn hand_on(&self, name: &str, id: &str, process: &str) -> Result<Option<Next>, Failure> {
        let answers = self.client.run(&self.statements.hand_on(name, id, process), false).await?;
        let row = answers.last().and_then(|rows| rows.first());
        Ok(row.map(|row| {
            let state = value(row, 2);
            let (id, ticket, expires) = (value(row, 0), value(row, 1), value(row, 3));
            Next { seen: Seen { id, ticket, state, expires }, ours: state == HELD }
        }))
    }

    async fn beat(&self, process: &str) -> Result<i64, Failure> {
        Ok(self.ask(&self.statements.beat(process), true).await?.unwrap_or(0))
    }

    async fn end(&self, process: &str) -> Result<(), Failure> {
        self.client.run(&self.statements.end(process), true).await.map(|_| ())
    }

    async fn granted(&self, process: &str, names: &[String]) -> Result<Vec<Told>, Failure> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.rows(&self.statements.granted(process, names)).await?;
        let told = |row| Told { id: value(row, 0), handed: value::<i64>(row, 1) != 0 };
        Ok(rows.iter().map(told).collect())
    }

    async fn claims_of(&self, process: &str, name: &str) -> Result<Vec<String>, Failure> {
        let rows = self.rows(&self.statements.claims_of(process, name)).await?;
        Ok(rows.iter().map(|row| value(row, 0)).collect())
    }

    async fn broken(&self, process: &str) -> Result<Vec<(String, String, String)>, Failure> {
        let rows = self.rows(&self.statements.broken(process)).await?;
        Ok(rows.iter().map(|row| (value(row, 0), value(row, 1), value(row, 2))).collect())
    }

    async fn list(&self, first: &str, last: &str) -> Result<(i64, Vec<Listed>), Failure> {
        let rows = self.rows(&self.statements.list(first, last)).await?;
        let now = rows.first().map_or(0, |row| value(row, 0));
        let filled = rows.iter().filter(|row| value::<Option<i64>>(row, 2).is_some());
        let listed = filled.map(|row| {
            let record = record(row, 4, value(row, 2), value(row, 3));
            (value(row, 1), record, value::<i64>(row, 14) != 0)
        });
        Ok((now, listed.collect()))
    }

    async fn names(
        &self,
        range: [&str; 2],
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, Failure> {
        let rows = self.rows(&self.statements.names(range, after, limit)).await?;
        Ok(rows.iter().map(|row| value(row, 0)).collect())
    }

    async fn raise_floor(&self, unused: i64) -> Result<(), Failure> {
        self.client.run(&self.statements.raise_floor(unused), true).await.map(|_| ())
    }

    async fn sweep(&self, unused: i64) -> Result<Vec<String>, Failure> {
        let rows = self.rows(&self.statements.sweep(unused)).await?;
        Ok(rows.iter().map(|row| value(row, 0)).collect())
    }

    /// These servers tell their uptime in whole seconds, which is not the same for two who ask.
    async fn incarnation(&self) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    async fn check_bound(&self) -> Result<()> {
        let at = self.shown();
        let rows = self.rows("SHOW GRANTS").await.map_err(|failure| failure.explain(at))?;
        let grants: Vec<String> = rows.iter().map(|row| value(row, 0)).collect();
        match grants.iter().find_map(|grant| unbound_by(grant)) {
            None => Ok(()),
            Some(right) => Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "the user at {at} has {right} ON *.*, and may write to a server that was made \
                     read-only, where its locks would go on after a move to the standby: use a \
                     user without that right"
                ),
            )),
        }
    }

    async fn enter(&self, always: bool) -> Result<Duration, Failure> {
        let lasted: Option<i64> = self.ask(&self.statements.enter(always), true).await?;
        Ok(Duration::from_micros(lasted.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)))
    }

    async fn listen(&self, _: &str) -> Result<Option<Listening>, Failure> {
        Ok(None)
    }

    fn can_listen(&self) -> bool {
        false
    }

    async fn prepare(&self) -> Result<()> {
        let maria = Prepare { client: &self.client, tables: &self.tables }.run().await?;
        self.returns.store(maria, Ordering::Relaxed);
        Ok(())
    }

    fn disconnect(&self) {
        self.client.disconnect();
    }
}

/// The right in a line of `SHOW GRANTS` with which one may write to a server that is read-only.
fn unbound_by(grant: &str) -> Option<&str> {
    let (rights, _) = grant.strip_prefix("GRANT ")?.split_once(" ON *.* TO ")?;
    rights.split(',').map(str::trim).find(|right| UNBOUND.contains(right))
}

impl fmt::Debug for MysqlRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MysqlRequests").field(&self.client).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_that_no_read_only_stops_are_found() {
        for (grant, right) in [
            ("GRANT ALL PRIVILEGES ON *.* TO `a`@`%`", "ALL PRIVILEGES"),
            ("GRANT PROCESS, SUPER ON *.* TO `a`@`%`", "SUPER"),
            ("GRANT READ_ONLY ADMIN ON *.* TO `a`@`%`", "READ_ONLY ADMIN"),
            ("GRANT READ ONLY ADMIN ON *.* TO `a`@`%`", "READ ONLY ADMIN"),
            ("GRANT BACKUP_ADMIN,CONNECTION_ADMIN ON *.* TO `a`@`%`", "CONNECTION_ADMIN"),
        ] {
            assert_eq!(unbound_by(grant), Some(right), "{grant}");
        }
        for grant in [
            "GRANT USAGE ON *.* TO `a`@`%`",
            "GRANT CONNECTION ADMIN, PROCESS ON *.* TO `a`@`%`",
            "GRANT ALL PRIVILEGES ON `lockkeeper`.* TO `a`@`%`",
            "GRANT `SUPER` TO `a`@`%`",
        ] {
            assert_eq!(unbound_by(grant), None, "{grant}");
        }
    }
}
