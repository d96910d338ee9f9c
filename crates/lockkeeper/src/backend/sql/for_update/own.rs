//! The lock of a name in a transaction of the caller's own: lock and data commit together, and no
//! token is needed, because a transaction whose lock is gone cannot commit.
//!
//! The rows are those of `recipe=for-update`, so both keep each other out. What is locked here is
//! free when the transaction ends, whichever way, and not before.
//!
//! Nothing is sent again in a transaction of the caller's: after a deadlock or a conflict the caller
//! alone knows what to repeat.

use super::super::error::Failure;
use super::super::options::check_identifier;
use super::rows_of;
use crate::backend::Name;
use crate::error::Result;

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
        Ok(Self { rows: rows_of(schema, table) })
    }

    /// Locks the name until the transaction ends; waits for whoever has it, for as long as the
    /// transaction's `lock_timeout` allows.
    ///
    /// # Errors
    /// What the server said. The transaction is then undone, as after every error in PostgreSQL.
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
                return Ok(());
            }
            self.make_in_postgres(transaction, &name).await?;
        }
    }

    /// Locks the name until the transaction ends, unless another has it; whether it is locked. A
    /// name that was never locked before may have to wait for one that is locked for the first time
    /// elsewhere.
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
        loop {
            let found = transaction.query(lock.as_str(), &[&name.as_str()]).await;
            if !found.map_err(|error| self.of_postgres(&error))?.is_empty() {
                return Ok(true);
            }
            let found = transaction.query(there.as_str(), &[&name.as_str()]).await;
            if !found.map_err(|error| self.of_postgres(&error))?.is_empty() {
                return Ok(false);
            }
            self.make_in_postgres(transaction, &name).await?;
        }
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

    /// Locks the name until the transaction ends; waits for whoever has it, for as long as the
    /// session's `innodb_lock_wait_timeout` allows.
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
        Ok(())
    }

    /// Locks the name until the transaction ends, unless another has it; whether it is locked. A
    /// name that was never locked before may have to wait for one that is locked for the first time
    /// elsewhere.
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
        loop {
            match self.find_in_mysql(transaction, &name, " NOWAIT").await {
                Ok(true) => return Ok(true),
                Ok(false) => self.make_in_mysql(transaction, &name).await?,
                Err(error) if error.kind() == crate::ErrorKind::TimedOut => return Ok(false),
                Err(error) => return Err(error),
            }
        }
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
