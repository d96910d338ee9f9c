//! Whom and what the store refuses, with words that help; and that it changes nothing then.

use super::{LONG, keeper, number, start};
use crate::{KIND, ask_for_password, grant_all, new_user, query, read_only};
use anyhow::{Context, Result, ensure};
use lockkeeper::{Error, ErrorKind};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Kind, Lab, Server};

cases!(
    a_user_that_is_not_let_in_is_told,
    a_missing_database_is_named,
    a_user_that_may_not_create_tables_is_told_what_to_do,
    read_and_write_on_the_two_tables_is_enough,
    a_user_that_may_not_create_the_table_of_numbers_is_told_how,
    numbers_of_the_database_go_on_after_a_restart,
    a_table_of_another_kind_is_left_alone,
    a_table_alone_is_left_alone,
    tables_of_a_later_version_are_left_alone,
    a_server_that_can_only_be_read_is_refused,
    nobody_there_is_said,
    another_protocol_is_named,
    a_password_lets_in_and_a_wrong_one_does_not,
);

/// A URL with another user, database and options.
pub(crate) fn url(server: &Server, user: &str, database: &str, options: &str) -> String {
    format!("{}://{user}@{}/{database}?{options}", KIND.word(), server.address())
}

pub(crate) async fn refused(url: &str) -> Result<Error> {
    lockkeeper::connect(url).await.err().context("it was let in")
}

pub(crate) fn says(error: &Error, kind: ErrorKind, words: &[&str]) -> Result<()> {
    let text = format!("{error} {error:?}");
    ensure!(error.kind() == kind, "{error:?}");
    ensure!(words.iter().all(|word| text.contains(word)), "{words:?} are not in {text}");
    ensure!(!text.contains("hunter2"), "a password is shown: {text}");
    Ok(())
}

async fn a_user_that_is_not_let_in_is_told(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let error = refused(&url(&server, "stranger:hunter2", "lockkeeper", "")).await?;
    says(&error, ErrorKind::Denied, &["user or the password"])
}

async fn a_missing_database_is_named(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let error = refused(&url(&server, "lockkeeper", "nowhere", "")).await?;
    says(&error, ErrorKind::Config, &["no such database", "nowhere"])
}

async fn a_user_that_may_not_create_tables_is_told_what_to_do(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    new_user(&server, "app")?;
    let error = refused(&url(&server, "app", "lockkeeper", "")).await?;
    says(&error, ErrorKind::Denied, &["lockkeeper schema"])
}

async fn read_and_write_on_the_two_tables_is_enough(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    new_user(&server, "app")?;
    let theirs = url(&server, "app", "lockkeeper", "");
    let script = lockkeeper::backend::sql::schema_script(&theirs)?;
    grant_all(&server, &script)?;
    let (one, two) = (lockkeeper::connect(&theirs).await?, lockkeeper::connect(&theirs).await?);
    let held = one.lock("allowed").ttl(LONG).acquire().await?;
    let next = super::waiting(&two, "allowed");
    super::queue_of(&one, "allowed", 1).await;
    held.release().await?;
    let next = next.await??;
    one.break_hold("allowed", next.token().context("no token")?, "why not").await?;
    one.rw_lock("shared").read().acquire().await?.release().await?;
    ensure!(one.close(LONG).await && two.close(LONG).await, "they did not come to rest");
    Ok(())
}

async fn a_user_that_may_not_create_the_table_of_numbers_is_told_how(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    new_user(&server, "app")?;
    let theirs = url(&server, "app", "lockkeeper", "");
    grant_all(&server, &lockkeeper::backend::sql::schema_script(&theirs)?)?;
    let backend = lockkeeper::open(&theirs).await?;
    let sequencer = backend.sequencer().context("it has no sequencer")?;
    let error = sequencer.auto_increment(1).await.err().context("it was let")?;
    says(&error, ErrorKind::Denied, &["CREATE TABLE IF NOT EXISTS lockkeeper_ids", "GRANT"])?;
    let text = error.to_string();
    let (_, statements) = text.split_once('\n').context("there are no statements")?;
    grant_all(&server, statements)?;
    ensure!(sequencer.auto_increment(2).await? == Some(vec![1, 2]), "it does not begin at one");
    Ok(())
}

async fn numbers_of_the_database_go_on_after_a_restart(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    let mut last = 0;
    for _ in 0..3 {
        let backend = lockkeeper::open(&server.url()).await?;
        let sequencer = backend.sequencer().context("it has no sequencer")?;
        for count in [1, 1200, 7, 7, 7] {
            let taken = sequencer.auto_increment(count).await?.context("it has no such column")?;
            ensure!(taken.len() == usize::try_from(count)? && taken.is_sorted(), "{taken:?}");
            ensure!(taken[0] > last, "after {last} came {}", taken[0]);
            last = taken[taken.len() - 1];
        }
        let rows = number(&server, "SELECT count(*) FROM lockkeeper_ids")?;
        ensure!(rows > 0 && rows < 1500, "{rows} rows are left");
        server.restart()?;
    }
    Ok(())
}

async fn a_table_of_another_kind_is_left_alone(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    query(&server, "CREATE TABLE lockkeeper (name varchar(10), mine integer)")?;
    let error = refused(&server.url()).await?;
    says(&error, ErrorKind::Config, &["did not make", "?table="])?;
    ensure!(number(&server, &tables_like("lockkeeper%"))? == 1, "a table was made beside it");
    keeper(&server, "table=others").await?.lock("x").acquire().await?.release().await?;
    Ok(())
}

async fn a_table_alone_is_left_alone(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    query(&server, "CREATE TABLE lockkeeper_claim (mine integer)")?;
    let error = refused(&server.url()).await?;
    says(&error, ErrorKind::Config, &["lockkeeper_claim", "did not make"])?;
    ensure!(number(&server, &tables_like("lockkeeper%"))? == 1, "a table was made beside it");
    Ok(())
}

async fn tables_of_a_later_version_are_left_alone(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    drop(keeper(&server, "").await?);
    query(&server, "UPDATE lockkeeper SET last = 99 WHERE version = 0")?;
    let error = refused(&server.url()).await?;
    says(&error, ErrorKind::Store, &["later lockkeeper", "99", "upgrade"])
}

async fn a_server_that_can_only_be_read_is_refused(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    drop(keeper(&server, "").await?);
    new_user(&server, "app")?;
    let script = lockkeeper::backend::sql::schema_script(&server.url())?;
    grant_all(&server, &script)?;
    read_only(&server)?;
    let error = refused(&url(&server, "app", "lockkeeper", "")).await;
    let error = match error {
        Ok(error) => error,
        // Some servers let one in, and refuse the first write.
        Err(_) => {
            let keeper = lockkeeper::connect(&url(&server, "app", "lockkeeper", "")).await?;
            keeper.lock("x").try_acquire().await.err().context("it was written to")?
        }
    };
    says(&error, ErrorKind::Config, &["read", "primary"])
}

async fn nobody_there_is_said(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    server.kill()?;
    let error = refused(&server.url()).await?;
    says(&error, ErrorKind::Unavailable, &["is the server running"])
}

/// Each of these waits for the other side to speak first, or is not understood.
async fn another_protocol_is_named(lab: &Lab) -> Result<()> {
    let others = [Kind::Postgres, Kind::MariaDb, Kind::Redis, Kind::Memcached];
    for kind in others.into_iter().filter(|kind| *kind != KIND) {
        let other = lab.start(kind)?;
        let error = refused(&url(&other, "lockkeeper", "lockkeeper", "timeout=1s")).await?;
        let name = match kind {
            Kind::Postgres => "PostgreSQL",
            Kind::MariaDb => "MySQL",
            Kind::Redis => "Redis",
            _ => "memcached",
        };
        says(&error, ErrorKind::Config, &["protocol", name, &other.port().to_string()])?;
    }
    Ok(())
}

async fn a_password_lets_in_and_a_wrong_one_does_not(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    drop(keeper(&server, "").await?);
    ask_for_password(&server, "guarded", "hunter2")?;
    let right = url(&server, "guarded:hunter2", "lockkeeper", "");
    lockkeeper::connect(&right).await?.lock("guarded").acquire().await?.release().await?;
    let error = refused(&url(&server, "guarded:hunter22", "lockkeeper", "")).await?;
    says(&error, ErrorKind::Denied, &["user or the password"])?;
    let error = refused(&url(&server, "guarded", "lockkeeper", "")).await;
    ensure!(error.is_ok(), "let in without a password");
    Ok(())
}

fn tables_like(pattern: &str) -> String {
    format!("SELECT count(*) FROM information_schema.tables WHERE table_name LIKE '{pattern}'")
}
