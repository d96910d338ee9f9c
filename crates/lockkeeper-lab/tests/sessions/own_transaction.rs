//! The lock of a name in a transaction of the caller's own: lock and data commit together.

use crate::ends::cut;
use crate::{LONG, PATIENT, Recipe, network};
use anyhow::{Result, ensure};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Kind, Lab, Server};

/// A server, and a keeper on it that has made the table.
async fn opened(lab: &Lab, kind: Kind) -> Result<(Server, Keeper)> {
    let recipe = Recipe { kind, name: "for-update" };
    let server = recipe.start(lab)?;
    recipe.query(&server, "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL)")?;
    recipe.query(&server, "INSERT INTO account (id, balance) VALUES (1, 100)")?;
    let keeper = recipe.keeper(&server.url(), "").await?;
    Ok((server, keeper))
}

/// A server on which a keeper's session was cut, and a keeper that believes in its lock.
async fn believed(lab: &Lab, kind: Kind) -> Result<(Server, Proxy, Guard)> {
    let recipe = Recipe { kind, name: "for-update" };
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let keeper = recipe.keeper(&url, "session=4s").await?;
    let guard = keeper.lock("account/1").ttl(LONG).acquire().await?;
    cut(recipe, &server, &proxy)?;
    Ok((server, proxy, guard))
}

/// Whether a keeper can have the lock now.
async fn is_free(keeper: &Keeper, name: &str) -> Result<bool> {
    let Some(guard) = keeper.lock(name).try_acquire().await? else { return Ok(false) };
    guard.release().await?;
    Ok(true)
}

pub(crate) mod postgres {
    use super::{PATIENT, believed, ensure, is_free, opened};
    use anyhow::Result;
    use lockkeeper::backend::sql::RowLocks;
    use lockkeeper_lab::cases;
    use lockkeeper_lab::server::{Kind, Lab, Server};
    use tokio_postgres::{Client, NoTls};

    cases!(
        postgres_lock_and_data_commit_together,
        postgres_a_busy_name_does_not_undo_the_transaction,
        postgres_a_name_of_ones_own_transaction_is_waited_for,
        postgres_a_keeper_that_was_cut_off_is_waited_for,
    );

    async fn client(server: &Server) -> Result<Client> {
        let url = format!("host=127.0.0.1 port={} user=lockkeeper", server.port());
        let (client, connection) =
            tokio_postgres::connect(&format!("{url} dbname=lockkeeper"), NoTls).await?;
        // Ends with the client.
        tokio::spawn(connection);
        Ok(client)
    }

    async fn postgres_a_keeper_that_was_cut_off_is_waited_for(lab: &Lab) -> Result<()> {
        let (server, _proxy, guard) = believed(lab, Kind::Postgres).await?;
        let locks = RowLocks::new(None, "lockkeeper")?;
        let mut client = client(&server).await?;
        let transaction = client.transaction().await?;
        let taken = locks.try_lock_in_postgres(&transaction, "account/1").await?;
        ensure!(!taken || !guard.is_held(), "two have it");
        ensure!(!taken, "unknown: the lease was over before");
        transaction.rollback().await?;
        let transaction = client.transaction().await?;
        locks.lock_in_postgres(&transaction, "account/1").await?;
        ensure!(!guard.is_held(), "two have it");
        transaction.commit().await?;
        Ok(())
    }

    async fn postgres_lock_and_data_commit_together(lab: &Lab) -> Result<()> {
        let (server, keeper) = opened(lab, Kind::Postgres).await?;
        let locks = RowLocks::new(None, "lockkeeper")?;
        let mut client = client(&server).await?;
        for (commits, balance) in [(false, 100_i64), (true, 90)] {
            let transaction = client.transaction().await?;
            locks.lock_in_postgres(&transaction, "account/1").await?;
            transaction.execute("UPDATE account SET balance = balance - 10", &[]).await?;
            // In the first round the row itself is made in the transaction, and undone with it.
            ensure!(!is_free(&keeper, "account/1").await?, "a keeper has it as well");
            if commits {
                transaction.commit().await?;
            } else {
                transaction.rollback().await?;
            }
            ensure!(is_free(&keeper, "account/1").await?, "it outlived its transaction");
            let row = client.query_one("SELECT balance FROM account", &[]).await?;
            ensure!(row.get::<_, i64>(0) == balance, "{}", row.get::<_, i64>(0));
        }
        Ok(())
    }

    async fn postgres_a_busy_name_does_not_undo_the_transaction(lab: &Lab) -> Result<()> {
        let (server, keeper) = opened(lab, Kind::Postgres).await?;
        let locks = RowLocks::new(None, "lockkeeper")?;
        let held = keeper.lock("account/1").acquire().await?;
        let mut client = client(&server).await?;
        let transaction = client.transaction().await?;
        transaction.execute("UPDATE account SET balance = 7", &[]).await?;
        ensure!(!locks.try_lock_in_postgres(&transaction, "account/1").await?, "two have it");
        held.release().await?;
        ensure!(locks.try_lock_in_postgres(&transaction, "account/1").await?, "nobody has it");
        transaction.commit().await?;
        let row = client.query_one("SELECT balance FROM account", &[]).await?;
        ensure!(row.get::<_, i64>(0) == 7, "the transaction was undone");
        Ok(())
    }

    async fn postgres_a_name_of_ones_own_transaction_is_waited_for(lab: &Lab) -> Result<()> {
        let (server, keeper) = opened(lab, Kind::Postgres).await?;
        let locks = RowLocks::new(None, "lockkeeper")?;
        ensure!(is_free(&keeper, "account/1").await?, "unknown: somebody has it");
        let mut client = client(&server).await?;
        let transaction = client.transaction().await?;
        locks.lock_in_postgres(&transaction, "account/1").await?;
        let lock = keeper.lock("account/1");
        let waiting = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        ensure!(!waiting.is_finished(), "a keeper has it as well");
        transaction.commit().await?;
        waiting.await??.release().await?;
        Ok(())
    }
}

pub(crate) mod mariadb {
    use super::{believed, ensure, is_free, opened};
    use anyhow::Result;
    use lockkeeper::backend::sql::RowLocks;
    use lockkeeper_lab::cases;
    use lockkeeper_lab::server::{Kind, Lab, Server};
    use mysql_async::prelude::Queryable;
    use mysql_async::{Conn, OptsBuilder, TxOpts};

    cases!(
        mariadb_lock_and_data_commit_together,
        mariadb_a_busy_name_does_not_undo_the_transaction,
        mariadb_a_keeper_that_was_cut_off_is_waited_for,
    );

    async fn client(server: &Server) -> Result<Conn> {
        let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(server.port());
        let opts = opts.user(Some("lockkeeper")).db_name(Some("lockkeeper"));
        Ok(Conn::new(opts).await?)
    }

    async fn mariadb_a_keeper_that_was_cut_off_is_waited_for(lab: &Lab) -> Result<()> {
        let (server, _proxy, guard) = believed(lab, Kind::MariaDb).await?;
        let locks = RowLocks::new(None, "lockkeeper")?;
        let mut client = client(&server).await?;
        let mut transaction = client.start_transaction(TxOpts::default()).await?;
        let taken = locks.try_lock_in_mysql(&mut transaction, "account/1").await?;
        ensure!(!taken || !guard.is_held(), "two have it");
        ensure!(!taken, "unknown: the lease was over before");
        transaction.rollback().await?;
        let mut transaction = client.start_transaction(TxOpts::default()).await?;
        locks.lock_in_mysql(&mut transaction, "account/1").await?;
        ensure!(!guard.is_held(), "two have it");
        transaction.commit().await?;
        client.disconnect().await?;
        Ok(())
    }

    async fn mariadb_lock_and_data_commit_together(lab: &Lab) -> Result<()> {
        let (server, keeper) = opened(lab, Kind::MariaDb).await?;
        let locks = RowLocks::new(None, "lockkeeper")?;
        let mut client = client(&server).await?;
        for (commits, balance) in [(false, 100_i64), (true, 90)] {
            let mut transaction = client.start_transaction(TxOpts::default()).await?;
            locks.lock_in_mysql(&mut transaction, "account/1").await?;
            transaction.query_drop("UPDATE account SET balance = balance - 10").await?;
            ensure!(!is_free(&keeper, "account/1").await?, "a keeper has it as well");
            if commits {
                transaction.commit().await?;
            } else {
                transaction.rollback().await?;
            }
            ensure!(is_free(&keeper, "account/1").await?, "it outlived its transaction");
            let there: Option<i64> = client.query_first("SELECT balance FROM account").await?;
            ensure!(there == Some(balance), "{there:?}");
        }
        client.disconnect().await?;
        Ok(())
    }

    async fn mariadb_a_busy_name_does_not_undo_the_transaction(lab: &Lab) -> Result<()> {
        let (server, keeper) = opened(lab, Kind::MariaDb).await?;
        let locks = RowLocks::new(None, "lockkeeper")?;
        let held = keeper.lock("account/1").acquire().await?;
        let mut client = client(&server).await?;
        let mut transaction = client.start_transaction(TxOpts::default()).await?;
        transaction.query_drop("UPDATE account SET balance = 7").await?;
        ensure!(!locks.try_lock_in_mysql(&mut transaction, "account/1").await?, "two have it");
        held.release().await?;
        ensure!(locks.try_lock_in_mysql(&mut transaction, "account/1").await?, "nobody has it");
        transaction.commit().await?;
        let there: Option<i64> = client.query_first("SELECT balance FROM account").await?;
        ensure!(there == Some(7), "the transaction was undone: {there:?}");
        client.disconnect().await?;
        Ok(())
    }
}
