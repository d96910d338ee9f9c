//! The adapters of `lockkeeper::fence`: on real servers a stale token is refused, an equal one is not.

use anyhow::{Context as _, Result, ensure};
use lockkeeper::fence::{self, FencedTable};
use lockkeeper::{ErrorKind, FencingToken};
use lockkeeper_lab::server::Server;
use mysql_async::prelude::Queryable;

/// What every server is asked, in this order: a token, the number to write or `None` to enter, and
/// whether it is to be accepted.
const STEPS: &[(u64, Option<i64>, bool)] = &[
    (1024, None, true),
    // Once more, as after an answer that was lost.
    (1024, None, true),
    (1024, Some(90), true),
    (1024, Some(90), true),
    (2048, None, true),
    (1024, None, false),
    (1024, Some(0), false),
    (2048, Some(80), true),
    (4096, Some(70), true),
    (2048, Some(1), false),
];
const LEFT: i64 = 70;

fn judge(outcome: lockkeeper::Result<()>, step: &(u64, Option<i64>, bool)) -> Result<()> {
    let kind = outcome.as_ref().err().map(lockkeeper::Error::kind);
    let wanted = if step.2 { None } else { Some(ErrorKind::Lost) };
    ensure!(kind == wanted, "{step:?} gave {outcome:?}");
    Ok(())
}

fn token(number: u64) -> Result<FencingToken> {
    FencingToken::new(number).context("a token")
}

fn table() -> Result<FencedTable> {
    // Quoted names: a word of SQL, and one with a quote in it.
    Ok(FencedTable::new("order", "the \"key`")?.fence_column("seen")?)
}

pub(crate) async fn postgres(server: &Server) -> Result<()> {
    let at = format!("host=127.0.0.1 port={} user=lockkeeper dbname=lockkeeper", server.port());
    let (client, connection) = tokio_postgres::connect(&at, tokio_postgres::NoTls).await?;
    // Ends with the client.
    tokio::spawn(connection);
    client
        .batch_execute(
            "CREATE TABLE \"order\" (\"the \"\"key`\" TEXT PRIMARY KEY, n BIGINT, \
             seen BIGINT NOT NULL DEFAULT 0); INSERT INTO \"order\" VALUES ('tea', 100), ('c', 5)",
        )
        .await?;
    let table = table()?;
    for step in STEPS {
        let outcome = match &step.1 {
            None => fence::postgres::enter(&client, &table, &"tea", token(step.0)?).await,
            Some(n) => {
                fence::postgres::update(&client, &table, &"tea", token(step.0)?, &[("n", n)]).await
            }
        };
        judge(outcome, step)?;
    }
    let row = client.query_one("SELECT sum(n)::BIGINT, max(seen) FROM \"order\"", &[]).await?;
    ensure!((row.get(0), row.get(1)) == (LEFT + 5, 4096_i64), "another row was written");
    let none = fence::postgres::enter(&client, &table, &"coffee", token(9)?).await;
    let kind = none.map_err(|error| error.kind());
    ensure!(kind == Err(ErrorKind::Config), "a row that is not there gave {kind:?}");
    Ok(())
}

pub(crate) async fn mariadb(server: &Server) -> Result<()> {
    let opts = mysql_async::OptsBuilder::default().ip_or_hostname("127.0.0.1");
    let opts = opts.tcp_port(server.port()).user(Some("lockkeeper")).db_name(Some("lockkeeper"));
    // Whichever rows the connection counts.
    for (round, found_rows) in [false, true].into_iter().enumerate() {
        let opts = opts.clone().client_found_rows(found_rows);
        let mut conn = mysql_async::Conn::new(opts.clone()).await?;
        conn.query_drop(
            "CREATE OR REPLACE TABLE `order` (`the \"key``` VARCHAR(40) PRIMARY KEY, n BIGINT, \
             seen BIGINT NOT NULL DEFAULT 0)",
        )
        .await?;
        conn.query_drop("INSERT INTO `order` VALUES ('tea', 100, 0), ('c', 5, 0)").await?;
        let table = table()?;
        for step in STEPS {
            let given = token(step.0)?;
            let outcome = match step.1 {
                None => fence::mysql::enter(&mut conn, &table, "tea", given).await,
                Some(n) => {
                    fence::mysql::update(&mut conn, &table, "tea", given, [("n", n.into())]).await
                }
            };
            judge(outcome, step).with_context(|| format!("round {round}"))?;
        }
        let row: Option<(i64, i64)> =
            conn.query_first("SELECT CAST(sum(n) AS SIGNED), max(seen) FROM `order`").await?;
        ensure!(row == Some((LEFT + 5, 4096)), "another row was written: {row:?}");
        stale_in_an_old_snapshot(&mut conn, mysql_async::Conn::new(opts).await?, &table).await?;
        conn.disconnect().await?;
    }
    Ok(())
}

/// A transaction that saw its own token before a newer holder came must not believe that it still is
/// the largest.
async fn stale_in_an_old_snapshot(
    conn: &mut mysql_async::Conn,
    mut other: mysql_async::Conn,
    table: &FencedTable,
) -> Result<()> {
    fence::mysql::enter(conn, table, "tea", token(5000)?).await?;
    let mut transaction = conn.start_transaction(mysql_async::TxOpts::default()).await?;
    let seen: Option<i64> = transaction.query_first("SELECT max(seen) FROM `order`").await?;
    ensure!(seen == Some(5000), "unknown: the snapshot has {seen:?}");
    fence::mysql::enter(&mut other, table, "tea", token(6000)?).await?;
    let stale = [("n", 1_i64.into())];
    let outcome = fence::mysql::update(&mut transaction, table, "tea", token(5000)?, stale).await;
    let kind = outcome.map_err(|error| error.kind());
    ensure!(kind == Err(ErrorKind::Lost), "believed an old snapshot: {kind:?}");
    transaction.rollback().await?;
    other.disconnect().await?;
    Ok(())
}

pub(crate) async fn redis(server: &Server) -> Result<()> {
    let client = redis::Client::open(format!("redis://{}", server.address()))?;
    let mut db = client.get_multiplexed_async_connection().await?;
    for step in STEPS {
        let given = token(step.0)?;
        let outcome = match step.1 {
            None => fence::redis::enter::<i64>(&mut db, "stock:tea", given).await.map(drop),
            Some(n) => fence::redis::write(&mut db, "stock:tea", given, n).await,
        };
        judge(outcome, step)?;
    }
    let left: Option<i64> = fence::redis::enter(&mut db, "stock:tea", token(8192)?).await?;
    ensure!(left == Some(LEFT), "another value was written: {left:?}");
    Ok(())
}
