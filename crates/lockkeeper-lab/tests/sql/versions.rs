//! Tables of earlier and later versions: brought up where the user may, refused with what to do
//! where not, and never half changed.

use super::doors::{refused, says, url};
use super::{keeper, number, start};
use crate::{VERSION_0, grant_all, new_user, query};
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper::backend::sql::{migration_script, schema_script};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};
use std::sync::Arc;

cases!(
    tables_without_a_version_are_brought_up,
    tables_half_brought_up_are_brought_up,
    who_may_not_change_tables_is_given_the_statements,
    tables_of_a_later_version_are_left_alone_whatever_is_in_them,
    tables_that_never_were_ours_are_left_alone,
);

/// Everything about the columns of a table, in the order of their names.
fn columns(server: &Server, table: &str) -> Result<Vec<String>> {
    query(
        server,
        &format!(
            "SELECT concat(column_name, ' ', data_type, ' ', is_nullable, ' ', \
             coalesce(column_default, '-')) FROM information_schema.columns \
             WHERE table_name = '{table}' ORDER BY 1"
        ),
    )
}

/// What is in the tables, and how they are made.
fn everything(server: &Server) -> Result<Vec<String>> {
    let mut all = columns(server, "lockkeeper")?;
    all.extend(columns(server, "lockkeeper_claim")?);
    all.extend(query(server, "SELECT concat(name, last, expires) FROM lockkeeper ORDER BY 1")?);
    all.extend(query(server, "SELECT concat(name, id) FROM lockkeeper_claim ORDER BY 1")?);
    Ok(all)
}

/// As tables made anew, with the locks of before in them.
async fn are_brought_up(server: &Server) -> Result<()> {
    let one = keeper(server, "table=fresh").await?;
    one.lock("x").acquire().await?.release().await?;
    for suffix in ["", "_claim"] {
        let ours = columns(server, &format!("lockkeeper{suffix}"))?;
        let fresh = columns(server, &format!("fresh{suffix}"))?;
        ensure!(ours == fresh, "{ours:?} instead of {fresh:?}");
    }
    let waiting = "SELECT sum(waiting) FROM lockkeeper WHERE name = 'wanted'";
    ensure!(number(server, waiting)? == 1, "who waits was not counted");
    let one = keeper(server, "").await?;
    ensure!(one.lock("held").try_acquire().await?.is_none(), "what was held is free");
    let holder = one.show("held").await?.holders.pop().context("nobody holds it")?;
    let token = holder.token.context("it has no token")?;
    one.break_hold("held", token, "it is long gone").await?;
    let next = one.lock("held").acquire().await?;
    ensure!(next.token() > Some(token), "{token:?} and then {:?}", next.token());
    next.release().await?;
    Ok(())
}

/// By the first of many that come at once.
async fn tables_without_a_version_are_brought_up(lab: &Lab) -> Result<()> {
    let server = Arc::new(start(lab)?);
    grant_all(&server, VERSION_0)?;
    let open = |_| {
        let server = server.clone();
        tokio::spawn(async move {
            let keeper = keeper(&server, "").await?;
            anyhow::Ok(keeper.lock("first").acquire().await?.release().await?)
        })
    };
    for opened in (0..8).map(open).collect::<Vec<_>>() {
        opened.await??;
    }
    are_brought_up(&server).await
}

/// As a process leaves them on MariaDB that dies after the first statement of the step.
async fn tables_half_brought_up_are_brought_up(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    grant_all(&server, VERSION_0)?;
    query(&server, "ALTER TABLE lockkeeper ADD COLUMN waiting bigint NOT NULL DEFAULT 0")?;
    drop(keeper(&server, "").await?);
    are_brought_up(&server).await
}

async fn who_may_not_change_tables_is_given_the_statements(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    new_user(&server, "app")?;
    grant_all(&server, VERSION_0)?;
    let theirs = url(&server, "app", "lockkeeper", "");
    let script = schema_script(&theirs)?;
    let rights = script.lines().filter(|line| line.starts_with("GRANT"));
    grant_all(&server, &rights.collect::<Vec<_>>().join("\n"))?;
    let before = everything(&server)?;
    let error = refused(&theirs).await?;
    let script = migration_script(&theirs, 0)?;
    says(&error, ErrorKind::Denied, &["lockkeeper schema", "--from 0", "ALTER TABLE"])?;
    ensure!(error.to_string().contains(&script), "the statements are not in {error}");
    ensure!(everything(&server)? == before, "something was changed");
    // By a user that may.
    grant_all(&server, &script)?;
    let one = lockkeeper::connect(&theirs).await?;
    one.lock("theirs").acquire().await?.release().await?;
    are_brought_up(&server).await
}

/// Their columns may be anything; the mark counts.
async fn tables_of_a_later_version_are_left_alone_whatever_is_in_them(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    drop(keeper(&server, "").await?);
    query(&server, "UPDATE lockkeeper SET last = 99 WHERE version = 0")?;
    for change in [
        "ALTER TABLE lockkeeper DROP COLUMN waiting",
        "ALTER TABLE lockkeeper DROP COLUMN note",
        "DROP TABLE lockkeeper_claim",
        "CREATE TABLE lockkeeper_claim (another integer)",
    ] {
        query(&server, change)?;
        if change.starts_with("DROP TABLE") {
            continue;
        }
        let before = columns(&server, "lockkeeper")?;
        let error = refused(&server.url()).await?;
        says(&error, ErrorKind::Store, &["later lockkeeper", "99", "upgrade"])?;
        ensure!(columns(&server, "lockkeeper")? == before, "something was changed");
    }
    Ok(())
}

/// Without a mark, and with a column less than any version had.
async fn tables_that_never_were_ours_are_left_alone(lab: &Lab) -> Result<()> {
    let server = start(lab)?;
    grant_all(&server, VERSION_0)?;
    query(&server, "ALTER TABLE lockkeeper_claim DROP COLUMN token")?;
    let before = everything(&server)?;
    let error = refused(&server.url()).await?;
    says(&error, ErrorKind::Config, &["did not make", "?table="])?;
    ensure!(everything(&server)? == before, "something was changed");
    Ok(())
}
