//! What a user of Redis may do, and what is said when it may not.

use crate::{LONG, PATIENT, RIGHTS, cases, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Keeper, Name};
use lockkeeper_lab::server::{Lab, Server};

cases!(
    the_documented_rights_are_enough_for_everything,
    a_right_that_is_missing_is_named_at_once,
    a_right_that_is_taken_away_is_denied_in_a_script_too,
    a_user_may_be_let_at_some_locks_only,
);

fn url(server: &Server) -> String {
    format!("redis://app:secret@{}", server.address())
}

/// Whatever can be done with a lock.
pub(crate) async fn do_everything(one: &Keeper, two: &Keeper, name: &str) -> Result<()> {
    let held = one.lock(name).ttl(LONG).acquire().await?;
    let lock = two.lock(name).ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(one, name, 1).await;
    held.release().await?;
    let held = waiter.await??;
    ensure!(one.list("").await?.iter().any(|view| view.name.as_str() == name), "not listed");
    one.break_hold(name, held.token().context("a token")?, "why not").await?;
    tokio::time::timeout(PATIENT, held.lost()).await.context("it was told")?;
    drop(held);
    one.rw_lock(name).read().ttl(LONG).acquire().await?.release().await?;
    one.semaphore(format!("{{{name}}}/2"), 2).ttl(LONG).acquire().await?.release().await?;
    one.reserve(name, 10, 0).await?;
    Ok(())
}

async fn the_documented_rights_are_enough_for_everything(lab: &Lab) -> Result<()> {
    let page = include_str!("../../../../docs/backends/redis.md");
    let page: Vec<_> = page.split_whitespace().collect();
    ensure!(page.join(" ").contains(&format!("`{RIGHTS}`")), "the documentation says otherwise");
    let group = lab.redis().config(&format!("user app on >secret {RIGHTS}")).start_replicated(1)?;
    for url in [url(&group.primary), format!("{}?replicas=1", url(&group.primary))] {
        let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
        do_everything(&one, &two, "allowed").await?;
        let backend = lockkeeper::open(&url).await?;
        let sequencer = backend.sequencer().context("it has no sequencer")?;
        let name = Name::new(&format!("of {url}").replace("secret", "…"))?;
        ensure!(sequencer.write(&name, "1", None).await?, "it was there");
        ensure!(sequencer.write(&name, "2", Some("1")).await?, "it says something else");
        ensure!(sequencer.read(&name).await?.as_deref() == Some("2"), "it was not written");
        ensure!(!sequencer.list("").await?.is_empty(), "it is not listed");
        ensure!(sequencer.time().await?.is_some(), "there is no time");
    }
    Ok(())
}

async fn a_right_that_is_missing_is_named_at_once(lab: &Lab) -> Result<()> {
    let server = lab.redis().config(&format!("user app on >secret {RIGHTS}")).start()?;
    for missing in ["set", "hset", "lpop", "evalsha", "time", "subscribe"] {
        server.redis()?.ask(&["ACL", "SETUSER", "app", &format!("-{missing}")])?;
        let error = lockkeeper::connect(&url(&server)).await.err().context(missing)?;
        ensure!(error.kind() == ErrorKind::Denied, "{missing}: {error:?}");
        ensure!(error.to_string().contains(missing), "{missing}: {error}");
        server.redis()?.ask(&["ACL", "SETUSER", "app", &format!("+{missing}")])?;
    }
    // Without these it works, only not as well.
    for missing in ["publish", "config", "scan", "wait"] {
        server.redis()?.ask(&["ACL", "SETUSER", "app", &format!("-{missing}")])?;
        let keeper = lockkeeper::connect(&url(&server)).await.context(missing)?;
        keeper.lock("still").ttl(LONG).acquire().await?.release().await?;
    }
    let error = lockkeeper::connect(&format!("{}?replicas=1", url(&server))).await;
    let error = error.err().context("it cannot wait for replicas")?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(error.to_string().contains("wait"), "{error}");
    Ok(())
}

async fn a_right_that_is_taken_away_is_denied_in_a_script_too(lab: &Lab) -> Result<()> {
    let server = lab.redis().config(&format!("user app on >secret {RIGHTS}")).start()?;
    let keeper = lockkeeper::connect(&url(&server)).await?;
    keeper.lock("free").ttl(LONG).acquire().await?.release().await?;
    server.redis()?.ask(&["ACL", "SETUSER", "app", "-set"])?;
    let error = keeper.lock("free").try_acquire().await.err().context("it may not")?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(error.to_string().contains("access list"), "{error}");
    Ok(())
}

/// Some are let at some locks only; what the others need is found out when they are asked for.
async fn a_user_may_be_let_at_some_locks_only(lab: &Lab) -> Result<()> {
    let rights = RIGHTS.replace("~lockkeeper:*", "~lockkeeper:{mine/*");
    let server = lab.redis().config(&format!("user app on >secret {rights}")).start()?;
    let keeper = lockkeeper::connect(&url(&server)).await?;
    keeper.lock("mine/1").ttl(LONG).acquire().await?.release().await?;
    let error = keeper.lock("yours").try_acquire().await.err().context("it may not")?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    Ok(())
}
