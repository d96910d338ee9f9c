//! The lock of a name in a transaction of the caller's own: lock and data commit together, and no
//! token is needed, because a transaction whose lock is gone cannot commit.
//!
//! The rows are those of `recipe=for-update`, so both keep each other out. What is locked here is
//! free when the transaction ends, whichever way, and not before. A keeper whose session was cut may
//! believe in its lock for a while although its row is free; its debt is waited for here too.
//!
//! Nothing is sent again in a transaction of the caller's: after a deadlock or a conflict the caller
//! alone knows what to repeat.

use super::super::error::Failure;
use super::super::options::check_identifier;
use super::{holders_of, rows_of};
use crate::backend::Name;
use crate::error::Result;
use std::time::Duration;

/// The rows of one table, for locking them in transactions of the caller's.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn book(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use lockkeeper::backend::sql::RowLocks;
///
/// let locks = RowLocks::new(None, "lockkeeper")?;
/// let transaction = client.transaction().await?;
/// if locks.try_lock_in_postgres(&transaction, "orders/42").await? {
///     transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 1", &[]).await?;
///     transaction.commit().await?; // the change, and the end of the lock
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RowLocks {
    rows: String,
    holders: String,
}

impl RowLocks {
    /// Those of the keepers with the same `schema` (PostgreSQL only) and `table`. The table must be
    /// there: a keeper with `recipe=for-update` makes it, and so does what `lockkeeper schema`
    /// prints.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for names that are none of ours.
    pub fn new(schema: Option<&str>, table: &str) -> Result<Self> {
        check_identifier("table", table)?;
        if let Some(schema) = schema {
            check_identifier("schema", schema)?;
        }
        let rows = rows_of(schema, table);
        Ok(Self { holders: holders_of(&rows), rows })
    }

    /// Locks the name until the transaction ends; waits for the one that has it, for as long as the
    /// transaction's `lock_timeout` allows. After a keeper whose session ended without giving back,
    /// it waits until that keeper's lease is over, whatever `lock_timeout` says.
    ///
    /// # Errors
    /// What the server said. The transaction is then undone, as after every error in PostgreSQL. A
    /// transaction that is not READ COMMITTED is undone as well if a keeper had the name since it
    /// began.
    ///
    /// # Cancel safety
    /// Not cancel safe: the name may be locked, until the transaction ends.
    #[cfg(feature = "postgres")]
    pub async fn lock_in_postgres(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        name: &str,
    ) -> Result<()> {
        let (name, rows) = (Name::new(name)?, &self.rows);
        let lock = format!("SELECT 1 FROM {rows} WHERE name = $1 FOR UPDATE");
        loop {
            let found = transaction.query(lock.as_str(), &[&name.as_str()]).await;
            if !found.map_err(|error| self.of_postgres(&error))?.is_empty() {
                break;
            }
            self.make_in_postgres(transaction, &name).await?;
        }
        if let Some(debt) = self.debt_in_postgres(transaction, &name, "FOR SHARE").await? {
            tokio::time::sleep(debt).await;
        }
        Ok(())
    }

    /// Locks the name until the transaction ends, unless another has it; whether it is locked. A
    /// name that was never locked before may have to wait for one that is locked for the first time
    /// elsewhere. `false` also for as long as a keeper may believe whose session ended without giving
    /// back.
    ///
    /// # Errors
    /// As [`lock_in_postgres`](Self::lock_in_postgres). A name that another has is no error, and the
    /// transaction goes on.
    ///
    /// # Cancel safety
    /// As there.
    #[cfg(feature = "postgres")]
    pub async fn try_lock_in_postgres(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        name: &str,
    ) -> Result<bool> {
        let (name, rows) = (Name::new(name)?, &self.rows);
        // Not NOWAIT, which is an error, and an error undoes the whole transaction.
        let lock = format!("SELECT 1 FROM {rows} WHERE name = $1 FOR UPDATE SKIP LOCKED");
        let there = format!("SELECT 1 FROM {rows} WHERE name = $1");
        // Before as well, so that a row that is not granted is not locked by us.
        if self.debt_in_postgres(transaction, &name, "").await?.is_some() {
            return Ok(false);
        }
        loop {
            let found = transaction.query(lock.as_str(), &[&name.as_str()]).await;
            if !found.map_err(|error| self.of_postgres(&error))?.is_empty() {
                let debt = self.debt_in_postgres(transaction, &name, "FOR SHARE").await?;
                return Ok(debt.is_none());
            }
            let found = transaction.query(there.as_str(), &[&name.as_str()]).await;
            if !found.map_err(|error| self.of_postgres(&error))?.is_empty() {
                return Ok(false);
            }
            self.make_in_postgres(transaction, &name).await?;
        }
    }

    /// For how long a keeper may believe, as its row says. With `how` = `FOR SHARE` the row is not read
    /// as it was when a transaction of another isolation began, and it is locked: to be asked only by
    /// one that has locked the name, since a holder must be able to write its row.
    #[cfg(feature = "postgres")]
    async fn debt_in_postgres(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        name: &Name,
        how: &str,
    ) -> Result<Option<Duration>> {
        let ask = format!(
            "SELECT CASE WHEN believed > clock_timestamp() THEN least(lease_ms, \
               (extract(epoch FROM believed - clock_timestamp()) * 1000)::bigint) END \
             FROM {} WHERE name = $1 {how}",
            self.holders
        );
        let found = transaction.query_opt(ask.as_str(), &[&name.as_str()]).await;
        let found = found.map_err(|error| self.of_postgres(&error))?;
        Ok(found.and_then(|row| row.get::<_, Option<i64>>(0)).map(debt))
    }

    /// Makes the row in the caller's transaction, which has then locked it.
    #[cfg(feature = "postgres")]
    async fn make_in_postgres(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        name: &Name,
    ) -> Result<()> {
        let rows = &self.rows;
        let make = format!("INSERT INTO {rows} (name) VALUES ($1) ON CONFLICT (name) DO NOTHING");
        let made = transaction.execute(make.as_str(), &[&name.as_str()]).await;
        made.map(|_| ()).map_err(|error| self.of_postgres(&error))
    }

    #[cfg(feature = "postgres")]
    fn of_postgres(&self, error: &tokio_postgres::Error) -> crate::Error {
        self.explain(super::super::error::of_postgres(error))
    }

    /// Locks the name until the transaction ends; waits for the one that has it, for as long as the
    /// session's `innodb_lock_wait_timeout` allows. After a keeper whose session ended without giving
    /// back, it waits until that keeper's lease is over, whatever the session says.
    ///
    /// # Errors
    /// What the server said. After a deadlock the transaction is undone.
    ///
    /// # Cancel safety
    /// Not cancel safe: the name may be locked, until the transaction ends.
    #[cfg(feature = "mysql")]
    pub async fn lock_in_mysql(
        &self,
        transaction: &mut mysql_async::Transaction<'_>,
        name: &str,
    ) -> Result<()> {
        let name = Name::new(name)?;
        while !self.find_in_mysql(transaction, &name, "").await? {
            self.make_in_mysql(transaction, &name).await?;
        }
        if let Some(debt) = self.debt_in_mysql(transaction, &name).await? {
            tokio::time::sleep(debt).await;
        }
        Ok(())
    }

    /// Locks the name until the transaction ends, unless another has it; whether it is locked. A
    /// name that was never locked before may have to wait for one that is locked for the first time
    /// elsewhere. `false` also for as long as a keeper may believe whose session ended without giving
    /// back.
    ///
    /// # Errors
    /// As [`lock_in_mysql`](Self::lock_in_mysql). A name that another has is no error, and the
    /// transaction goes on.
    ///
    /// # Cancel safety
    /// As there.
    #[cfg(feature = "mysql")]
    pub async fn try_lock_in_mysql(
        &self,
        transaction: &mut mysql_async::Transaction<'_>,
        name: &str,
    ) -> Result<bool> {
        let name = Name::new(name)?;
        // Before as well, so that a row that is not granted is not locked by us.
        if self.debt_in_mysql(transaction, &name).await?.is_some() {
            return Ok(false);
        }
        loop {
            match self.find_in_mysql(transaction, &name, " NOWAIT").await {
                Ok(true) => return Ok(self.debt_in_mysql(transaction, &name).await?.is_none()),
                Ok(false) => self.make_in_mysql(transaction, &name).await?,
                Err(error) if error.kind() == crate::ErrorKind::TimedOut => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// For how long a keeper may believe that did not give back. Tables in memory are no part of
    /// transactions, so this is read as it is now.
    #[cfg(feature = "mysql")]
    async fn debt_in_mysql(
        &self,
        transaction: &mut mysql_async::Transaction<'_>,
        name: &Name,
    ) -> Result<Option<Duration>> {
        use super::super::client::{bytes, text};
        use super::super::session::holders::CLOCK;
        use mysql_async::prelude::Queryable;
        let (holders, name) = (&self.holders, bytes(name.as_str().as_bytes()));
        // As in `keys`, with the database that the transaction is in.
        let table = text(&format!(".{holders}"));
        let id = format!("UNHEX(LEFT(SHA2(CONCAT(DATABASE(), {table}, X'00', {name}), 256), 32))");
        let ask = format!(
            "SELECT LEAST((believed - {CLOCK}) DIV 1000, lease_ms) FROM {holders} \
             WHERE id = {id} AND believed > {CLOCK}"
        );
        let found = transaction.query_first::<i64, _>(ask).await;
        let found = found.map_err(|error| self.explain(super::super::error::of_mysql(&error)))?;
        Ok(found.map(debt))
    }

    /// Whether there is such a row, which is then locked. `TimedOut` for one that another has.
    #[cfg(feature = "mysql")]
    async fn find_in_mysql(
        &self,
        transaction: &mut mysql_async::Transaction<'_>,
        name: &Name,
        how: &str,
    ) -> Result<bool> {
        use mysql_async::prelude::Queryable;
        let (rows, name) = (&self.rows, super::super::client::bytes(name.as_str().as_bytes()));
        let lock = format!("SELECT 1 FROM {rows} WHERE name = {name} FOR UPDATE{how}");
        let found = transaction.query_first::<i64, _>(lock).await;
        found.map(|row| row.is_some()).map_err(|error| match &error {
            // Of these the first is MariaDB's, the second MySQL's.
            mysql_async::Error::Server(said) if matches!(said.code, 1205 | 3572) => {
                let message = "another has the lock: try again later";
                crate::Error::new(crate::ErrorKind::TimedOut, message)
            }
            _ => self.explain(super::super::error::of_mysql(&error)),
        })
    }

    /// Makes the row in the caller's transaction, which has then locked it.
    #[cfg(feature = "mysql")]
    async fn make_in_mysql(
        &self,
        transaction: &mut mysql_async::Transaction<'_>,
        name: &Name,
    ) -> Result<()> {
        use mysql_async::prelude::Queryable;
        let (rows, name) = (&self.rows, super::super::client::bytes(name.as_str().as_bytes()));
        let make = format!("INSERT IGNORE INTO {rows} (name) VALUES ({name})");
        let made = transaction.query_drop(make).await;
        made.map_err(|error| self.explain(super::super::error::of_mysql(&error)))
    }

    fn explain(&self, failure: Failure) -> crate::Error {
        failure.explain(&format!("the transaction on {}", self.rows))
    }
}

/// With the part of a millisecond that was cut off.
fn debt(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0) + 1)
}
