//! A user that may only read and write the tables, made as `lockkeeper schema` prints them.

use crate::{LONG, PATIENT, Recipe, every, lost, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::{Kind, Lab, Server};

every!(what_the_command_line_prints_is_enough);

/// A user with no rights but to connect.
fn new_user(recipe: Recipe, server: &Server) -> Result<()> {
    if recipe.kind == Kind::Postgres {
        recipe.query(server, "CREATE ROLE app LOGIN")?;
        recipe.query(server, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")?;
        return Ok(());
    }
    recipe.query(server, "CREATE USER app@'127.0.0.1'")?;
    // Without a right on anything in it, a database cannot even be chosen.
    recipe.query(server, "CREATE TABLE lockkeeper.door (a integer)")?;
    recipe.query(server, "GRANT SELECT ON lockkeeper.door TO app@'127.0.0.1'")?;
    Ok(())
}

/// Runs what `lockkeeper schema` prints.
fn run_script(recipe: Recipe, server: &Server, script: &str) -> Result<()> {
    if recipe.kind == Kind::Postgres {
        recipe.query(server, script)?;
        return Ok(());
    }
    let script = script.replace("TO app", "TO app@'127.0.0.1'");
    let lines: Vec<&str> = script.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in lines.join("\n").split(";\n").map(|it| it.trim_end_matches(';')) {
        recipe.query(server, statement)?;
    }
    Ok(())
}

async fn what_the_command_line_prints_is_enough(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    new_user(recipe, &server)?;
    let url = server.url().replace("lockkeeper@", "app@");
    let error = recipe.keeper(&url, "").await.err().context("it made tables")?;
    let error = error.downcast::<lockkeeper::Error>()?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(error.to_string().contains("lockkeeper schema"), "{error}");
    let script = format!("{url}?recipe={}", recipe.name);
    run_script(recipe, &server, &lockkeeper::backend::sql::schema_script(&script)?)?;
    let (one, two) = (recipe.keeper(&url, "").await?, recipe.keeper(&url, "").await?);
    let held = one.lock("allowed").ttl(LONG).acquire().await?;
    ensure!(two.lock("allowed").try_acquire().await?.is_none(), "two hold it");
    let next = waiting(&two, "allowed");
    held.release().await?;
    let next = next.await??;
    let seen = one.show("allowed").await?;
    ensure!(seen.holders.len() == 1 && seen.holders[0].token == next.token(), "{seen:?}");
    let token = next.token().context("no token")?;
    one.break_hold("allowed", token, "why not").await?;
    lost(&next).await?;
    ensure!(one.close(PATIENT).await && two.close(PATIENT).await, "they did not come to rest");
    Ok(())
}
