//! The statements of `lockkeeper::fence` on both databases, as a user would fill them in.

use crate::Recipe;
use anyhow::{Result, ensure};
use lockkeeper::fence::{SQL_ENTER, SQL_IF_UNCHANGED, SQL_UPDATE};
use lockkeeper_lab::server::{Kind, Lab, Server};

crate::every!(a_stale_writer_is_refused, of_two_who_read_the_same_version_one_writes);

/// The statement with its values in place of the question marks.
fn filled(statement: &str, values: &[i64]) -> String {
    let mut values = values.iter();
    let piece = |c: char| match c {
        '?' => values.next().map_or_else(|| "?".to_owned(), i64::to_string),
        other => other.to_string(),
    };
    statement.chars().map(piece).collect()
}

/// Runs a statement that changes rows; how many it changed.
fn changed(recipe: Recipe, server: &Server, statement: &str) -> Result<usize> {
    if recipe.kind == Kind::Postgres {
        let counted = format!("WITH changed AS ({statement} RETURNING 1) SELECT * FROM changed");
        // A `WITH` around an UPDATE is how one query tells.
        return Ok(recipe.query(server, &counted)?.len());
    }
    let before =
        recipe.query(server, "SELECT CONCAT(balance, '/', fence, '/', version) FROM account")?;
    recipe.query(server, statement)?;
    let after =
        recipe.query(server, "SELECT CONCAT(balance, '/', fence, '/', version) FROM account")?;
    Ok(usize::from(before != after))
}

fn account(recipe: Recipe, server: &Server) -> Result<()> {
    recipe.query(
        server,
        "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT, \
         fence BIGINT NOT NULL DEFAULT 0, version BIGINT NOT NULL DEFAULT 0)",
    )?;
    recipe.query(server, "INSERT INTO account (id, balance) VALUES (7, 100)")?;
    Ok(())
}

async fn a_stale_writer_is_refused(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    account(recipe, &server)?;
    let enter = |token: i64| changed(recipe, &server, &filled(SQL_ENTER, &[token, 7, token]));
    let write = |balance: i64, token: i64| {
        changed(recipe, &server, &filled(SQL_UPDATE, &[balance, token, 7, token]))
    };
    ensure!(enter(1024)? == 1 && write(90, 1024)? == 1, "the first was refused");
    ensure!(enter(2048)? == 1, "the second was refused");
    ensure!(write(0, 1024)? == 0 && enter(1024)? == 0, "the stale one was let in");
    ensure!(write(80, 2048)? == 1, "the second could not write");
    ensure!(recipe.query(&server, "SELECT balance FROM account")? == ["80"], "another balance");
    Ok(())
}

async fn of_two_who_read_the_same_version_one_writes(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    account(recipe, &server)?;
    let write = |balance: i64, version: i64| {
        changed(recipe, &server, &filled(SQL_IF_UNCHANGED, &[balance, 7, version]))
    };
    ensure!(write(90, 0)? == 1 && write(80, 0)? == 0, "both wrote what they had read once");
    ensure!(write(80, 1)? == 1, "who read again could not write");
    Ok(())
}
