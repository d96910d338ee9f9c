//! Another program that locks our rows.

use anyhow::Result;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// A session that is not ours.
pub(crate) struct Intruder(Client);

impl Intruder {
    pub(crate) async fn enter(port: u16) -> Result<Self> {
        let config = format!("host=127.0.0.1 port={port} user=lockkeeper dbname=lockkeeper");
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self(client))
    }

    pub(crate) async fn run(&mut self, sql: &str) -> Result<()> {
        Ok(self.0.batch_execute(sql).await?)
    }

    /// Locks the claims of a name and, a moment later, its row; whether the server ended this side.
    pub(crate) async fn lock_backwards(&mut self, name: &str) -> Result<bool> {
        let claims = format!("SELECT 1 FROM lockkeeper_claim WHERE name = '{name}' FOR UPDATE");
        let row = format!("SELECT 1 FROM lockkeeper WHERE name = '{name}' FOR UPDATE");
        // Either lock may close a circle: where the name has several claims, the first already can.
        let both = async {
            self.0.batch_execute(&format!("BEGIN; {claims}")).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.batch_execute(&row).await
        };
        let ended = match both.await {
            Ok(()) => false,
            Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => true,
            Err(error) => return Err(error.into()),
        };
        self.0.batch_execute("ROLLBACK").await?;
        Ok(ended)
    }
}
