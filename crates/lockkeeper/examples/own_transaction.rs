//! The lock and the data in one transaction of your own: both are kept, or neither.
//!
//! Ada and Bob book on one account, each in a transaction of a connection of their own. Bob is kept
//! waiting until Ada commits, and then reads what she wrote; he changes his mind, and leaves neither
//! a booking nor a lock behind. No token is needed: a transaction whose lock is gone cannot commit.
//!
//! `cargo run -p lockkeeper --features full --example own_transaction -- --store URL`, with a
//! `postgres://` or `mariadb://` URL.

mod support;

use lockkeeper::Keeper;
use lockkeeper::backend::sql::RowLocks;
use std::time::Duration;
use support::Story;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NAME: &str = "examples/account/1";
const ACCOUNT: [&str; 3] = [
    "DROP TABLE IF EXISTS lockkeeper_example_account",
    "CREATE TABLE lockkeeper_example_account (id INT PRIMARY KEY, balance BIGINT NOT NULL)",
    "INSERT INTO lockkeeper_example_account VALUES (1, 100)",
];
const READ: &str = "SELECT balance FROM lockkeeper_example_account WHERE id = 1";

/// What is written is made of what was read: without the lock, one of two bookings would be lost.
fn write(balance: i64) -> String {
    format!("UPDATE lockkeeper_example_account SET balance = {balance} WHERE id = 1")
}

#[tokio::main]
async fn main() -> Outcome {
    let url = support::store();
    let story = Story::begin("Two transactions, one account.");
    // Makes the table of the locks, and is kept out by transactions that have one.
    let separator = if url.contains('?') { '&' } else { '?' };
    let keeper = lockkeeper::connect(&format!("{url}{separator}recipe=for-update")).await?;
    // The first lock of a name makes its row. Were that done in Ada's transaction, Bob could not even
    // be told that the name is taken, and would have to wait.
    keeper.lock(NAME).acquire().await?.release().await?;
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => on_postgres(&url, &keeper, story).await?,
        Some("mysql" | "mariadb") => on_mariadb(&url, &keeper, story).await?,
        _ => return Err("name a database: --store postgres://… or --store mariadb://…".into()),
    }
    let guard = keeper.lock(NAME).try_acquire().await?.ok_or("the lock was left behind")?;
    story.tell("nothing is left of the lock");
    Ok(guard.release().await?)
}

/// What a keeper is told while a transaction has the lock.
async fn is_kept_out(keeper: &Keeper, story: Story) -> Outcome {
    assert!(keeper.lock(NAME).try_acquire().await?.is_none(), "two have the lock");
    story.tell("so is a keeper with recipe=for-update");
    Ok(())
}

async fn on_postgres(url: &str, keeper: &Keeper, story: Story) -> Outcome {
    let (mut ada, mut bob) = (postgres(url).await?, postgres(url).await?);
    ada.batch_execute(&ACCOUNT.join("; ")).await?;
    let locks = RowLocks::new(None, "lockkeeper")?;

    let first = ada.transaction().await?;
    locks.lock_in_postgres(&first, NAME).await?;
    let balance: i64 = first.query_one(READ, &[]).await?.get(0);
    story.tell(&format!("Ada has the lock in her transaction, and reads {balance}"));

    let second = bob.transaction().await?;
    assert!(!locks.try_lock_in_postgres(&second, NAME).await?, "two have the lock");
    story.tell("Bob is told that it is taken, and his transaction goes on");
    is_kept_out(keeper, story).await?;

    let booking = async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        first.execute(&write(balance - 10), &[]).await?;
        story.tell("Ada commits: the booking, and the end of the lock");
        Outcome::Ok(first.commit().await?)
    };
    let waiting = async {
        locks.lock_in_postgres(&second, NAME).await?;
        Outcome::Ok(second.query_one(READ, &[]).await?.get::<_, i64>(0))
    };
    let (booked, seen) = tokio::join!(booking, waiting);
    booked?;
    let seen = seen?;
    assert_eq!(seen, 90, "Bob did not wait for Ada");
    story.tell(&format!("Bob has waited for the lock, and reads {seen}"));

    second.execute(&write(seen - 50), &[]).await?;
    second.rollback().await?;
    let balance: i64 = ada.query_one(READ, &[]).await?.get(0);
    assert_eq!(balance, 90, "what was rolled back was booked");
    story.tell(&format!("Bob rolls back: the balance is still {balance}"));
    Ok(ada.batch_execute(ACCOUNT[0]).await?)
}

async fn postgres(url: &str) -> Outcome<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    // Ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

async fn on_mariadb(url: &str, keeper: &Keeper, story: Story) -> Outcome {
    use mysql_async::prelude::Queryable;
    use mysql_async::{Conn, IsolationLevel, TxOpts};
    // The driver knows one name for both servers.
    let url = url.replacen("mariadb:", "mysql:", 1);
    let (mut ada, mut bob) = (Conn::from_url(&url).await?, Conn::from_url(&url).await?);
    for statement in ACCOUNT {
        ada.query_drop(statement).await?;
    }
    let locks = RowLocks::new(None, "lockkeeper")?;
    // With REPEATABLE READ, the servers' default, the lock must come before the first read: that is
    // when such a transaction decides what it sees.
    let mut how = TxOpts::default();
    how.with_isolation_level(IsolationLevel::ReadCommitted);

    let mut first = ada.start_transaction(how.clone()).await?;
    locks.lock_in_mysql(&mut first, NAME).await?;
    let balance: i64 = first.query_first(READ).await?.ok_or("no account")?;
    story.tell(&format!("Ada has the lock in her transaction, and reads {balance}"));

    let mut second = bob.start_transaction(how).await?;
    assert!(!locks.try_lock_in_mysql(&mut second, NAME).await?, "two have the lock");
    story.tell("Bob is told that it is taken, and his transaction goes on");
    is_kept_out(keeper, story).await?;

    let booking = async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        first.query_drop(write(balance - 10)).await?;
        story.tell("Ada commits: the booking, and the end of the lock");
        Outcome::Ok(first.commit().await?)
    };
    let waiting = async {
        locks.lock_in_mysql(&mut second, NAME).await?;
        Outcome::Ok(second.query_first::<i64, _>(READ).await?.ok_or("no account")?)
    };
    let (booked, seen) = tokio::join!(booking, waiting);
    booked?;
    let seen = seen?;
    assert_eq!(seen, 90, "Bob did not wait for Ada");
    story.tell(&format!("Bob has waited for the lock, and reads {seen}"));

    second.query_drop(write(seen - 50)).await?;
    second.rollback().await?;
    let balance: i64 = ada.query_first(READ).await?.ok_or("no account")?;
    assert_eq!(balance, 90, "what was rolled back was booked");
    story.tell(&format!("Bob rolls back: the balance is still {balance}"));
    ada.query_drop(ACCOUNT[0]).await?;
    ada.disconnect().await?;
    Ok(bob.disconnect().await?)
}
