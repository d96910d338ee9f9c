//! Another program that locks our rows.

use anyhow::Result;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder};
use std::time::Duration;

/// A session that is not ours.
pub(crate) struct Intruder(Conn);

/// What the server calls a deadlock.
const DEADLOCK: u16 = 1213;
/// More rows than any statement of ours changes: of two, the server ends the one that changed less.
const WEIGHT: u32 = 100;

impl Intruder {
    pub(crate) async fn enter(port: u16) -> Result<Self> {
        let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(port);
        let opts = opts.user(Some("lockkeeper")).db_name(Some("lockkeeper"));
        let mut conn = Conn::new(opts).await?;
        conn.query_drop(
            "CREATE TABLE IF NOT EXISTS weight (number bigint AUTO_INCREMENT PRIMARY KEY)",
        )
        .await?;
        Ok(Self(conn))
    }

    pub(crate) async fn run(&mut self, sql: &str) -> Result<()> {
        Ok(self.0.query_drop(sql).await?)
    }

    /// Locks the claims of a name and, a moment later, its row; whether the server ended this side.
    pub(crate) async fn lock_backwards(&mut self, name: &str) -> Result<bool> {
        let rows = vec!["(NULL)"; usize::try_from(WEIGHT)?].join(", ");
        let claims = format!("SELECT 1 FROM lockkeeper_claim WHERE name = '{name}' FOR UPDATE");
        let row = format!("SELECT 1 FROM lockkeeper WHERE name = '{name}' FOR UPDATE");
        let both = async {
            self.0.query_drop(format!("BEGIN; INSERT INTO weight VALUES {rows}")).await?;
            self.0.query_drop(claims).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.query_drop(row).await
        };
        let ended = match both.await {
            Ok(()) => false,
            Err(Error::Server(error)) if error.code == DEADLOCK => true,
            Err(error) => return Err(error.into()),
        };
        self.0.query_drop("ROLLBACK").await?;
        Ok(ended)
    }
}
