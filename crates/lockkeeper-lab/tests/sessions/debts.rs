//! What a holder that did not give back leaves behind, and what those do who come after it.

use crate::ends::cut;
use crate::{LONG, PATIENT, Recipe, every, network};
use anyhow::{Context, Result, ensure};
use lockkeeper::backend::Moment;
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::wire::mariadb;
use lockkeeper_lab::server::{Kind, Lab};
use lockkeeper_lab::trials::eventually;
use std::time::Duration;

every!(
    one_who_waits_longer_than_its_own_lease_keeps_its_place,
    no_claim_is_refused_while_there_is_a_session_for_it,
    a_holder_from_the_future_is_shown,
    one_who_is_cut_off_while_it_waits_keeps_nobody_waiting,
);

cases!(
    readers_that_died_leave_no_row_behind,
    a_reader_that_was_cut_off_is_waited_for_by_a_writer_of_before,
    a_promoted_replica_grants_nothing_that_may_still_be_believed,
);

impl Recipe {
    /// The table of its holders.
    fn holders(self) -> &'static str {
        match (self.kind, self.name) {
            (Kind::Postgres, "for-update") => "lockkeeper_for_update_holder",
            (Kind::Postgres, _) => "lockkeeper_advisory",
            (_, "for-update") => "lockkeeper.lockkeeper_for_update_holder",
            _ => "lockkeeper.lockkeeper_get_lock",
        }
    }
}

/// The server ends sessions that say nothing for a lease, and this one has a short lease and a long
/// wait before it.
async fn one_who_waits_longer_than_its_own_lease_keeps_its_place(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let one = recipe.keeper(&url, "session=8s").await?;
    let guard = one.lock("long").ttl(LONG).acquire().await?;
    cut(recipe, &server, &proxy)?;
    let two = recipe.keeper(&server.url(), "session=8s").await?;
    let short = || two.lock("long").ttl(Duration::from_secs(1));
    let error = short().acquire_within(Duration::from_secs(3)).await;
    let error = error.err().context("unknown: it was free before")?;
    ensure!(error.kind() == ErrorKind::TimedOut, "{error:?}");
    let next = short().acquire_within(PATIENT).await?;
    ensure!(!guard.is_held(), "two hold it");
    next.release().await?;
    Ok(())
}

/// The keeper asks the server for this and that meanwhile.
async fn no_claim_is_refused_while_there_is_a_session_for_it(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    let server = recipe.start(lab)?;
    let keeper = recipe.keeper(&server.url(), "sessions=2").await?;
    let held = keeper.lock("held").ttl(LONG).acquire().await?;
    let asking = {
        let keeper = keeper.clone();
        tokio::spawn(async move {
            loop {
                keeper.list("").await?;
            }
            #[expect(unreachable_code, reason = "says what the task would return")]
            anyhow::Ok(())
        })
    };
    let until = Moment::now() + Duration::from_secs(2);
    let mut turns = 0;
    while !until.remaining().is_zero() {
        keeper.lock("again").acquire().await?.release().await?;
        turns += 1;
    }
    ensure!(!asking.is_finished(), "unknown: nobody asked");
    asking.abort();
    ensure!(turns > 20, "unknown: {turns} turns");
    held.release().await?;
    Ok(())
}

/// The server goes on with what it was asked for a moment, although nobody is there to hear of it.
async fn one_who_is_cut_off_while_it_waits_keeps_nobody_waiting(
    lab: &Lab,
    recipe: Recipe,
) -> Result<()> {
    // Longer than anybody is waited for here.
    let options = format!("session={}s", PATIENT.as_secs() * 3);
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let [one, three] = [
        recipe.keeper(&server.url(), &options).await?,
        recipe.keeper(&server.url(), &options).await?,
    ];
    let lock = |keeper: &Keeper| keeper.lock("given-up").ttl(PATIENT * 3);
    let waits = match recipe.kind {
        Kind::Postgres => {
            "SELECT pid FROM pg_stat_activity \
             WHERE application_name = 'lockkeeper' AND wait_event_type = 'Lock'"
        }
        _ => {
            "SELECT id FROM information_schema.processlist WHERE db = 'lockkeeper' \
             AND command = 'Query' AND id <> CONNECTION_ID()"
        }
    };
    for _ in 0..3 {
        let held = lock(&one).acquire().await?;
        let two = recipe.keeper(&url, &options).await?;
        let waiting = lock(&two);
        let waiting = tokio::spawn(async move { waiting.acquire_within(PATIENT).await });
        eventually("it waits in the server", async || {
            Ok((!recipe.query(&server, waits)?.is_empty()).then_some(()))
        })
        .await;
        proxy.control().reset();
        waiting.abort();
        ensure!(waiting.await.is_err_and(|end| end.is_cancelled()), "unknown: it did not wait");
        // What is left of it is taken back in the background, before the lock is free.
        tokio::time::sleep(Duration::from_millis(200)).await;
        held.release().await?;
        lock(&three).acquire_within(PATIENT).await?.release().await?;
    }
    Ok(())
}

/// As after a clock that went back.
async fn a_holder_from_the_future_is_shown(lab: &Lab, recipe: Recipe) -> Result<()> {
    let server = recipe.start(lab)?;
    let keeper = recipe.keeper(&server.url(), "").await?;
    let held = keeper.lock("future").ttl(LONG).acquire().await?;
    let hour = if recipe.kind == Kind::Postgres { "interval '1 hour'" } else { "3600000000" };
    let table = recipe.holders();
    recipe.query(&server, &format!("UPDATE {table} SET since = since + {hour}"))?;
    let seen = keeper.show("future").await?;
    let holder = seen.holders.first().context("nobody holds it")?;
    ensure!(holder.token == held.token(), "{seen:?}");
    held.release().await?;
    Ok(())
}

async fn readers_that_died_leave_no_row_behind(lab: &Lab) -> Result<()> {
    let recipe = Recipe { kind: Kind::Postgres, name: "advisory" };
    let server = recipe.start(lab)?;
    let one = recipe.keeper(&server.url(), "session=1s").await?;
    let rows = || recipe.query(&server, "SELECT seat FROM lockkeeper_advisory WHERE seat > 0");
    for _ in 0..4 {
        std::mem::forget(one.rw_lock("read").read().ttl(LONG).acquire().await?);
    }
    ensure!(rows()?.len() == 4, "unknown: they left no rows");
    recipe.end_sessions(&server)?;
    let two = recipe.keeper(&server.url(), "session=1s").await?;
    // Behind their leases, so that the writer waits for nobody.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    two.rw_lock("read").write().ttl(LONG).acquire_within(PATIENT).await?.release().await?;
    ensure!(rows()?.is_empty(), "{:?}", rows()?);
    Ok(())
}

/// The writer had the lock before, and takes it by a statement that does not read the rows of readers.
async fn a_reader_that_was_cut_off_is_waited_for_by_a_writer_of_before(lab: &Lab) -> Result<()> {
    let recipe = Recipe { kind: Kind::Postgres, name: "advisory" };
    let server = recipe.start(lab)?;
    let (proxy, url) = network(&server).await?;
    let writer = recipe.keeper(&server.url(), "session=8s").await?;
    let reader = recipe.keeper(&url, "session=8s").await?;
    let write = || writer.rw_lock("read").write().ttl(LONG);
    for _ in 0..2 {
        write().acquire().await?.release().await?;
    }
    let guard = reader.rw_lock("read").read().ttl(LONG).acquire().await?;
    cut(recipe, &server, &proxy)?;
    let busy = loop {
        match write().try_acquire().await {
            Ok(taken) => break taken.is_none(),
            // The session that the writer had kept for its next lock was ended, too.
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
    };
    ensure!(busy || !guard.is_held(), "two hold it");
    ensure!(busy, "unknown: the reader was told too soon");
    let next = write().acquire_within(PATIENT).await?;
    ensure!(!guard.is_held(), "two hold it");
    next.release().await?;
    Ok(())
}

/// Tables in memory are replicated, and with them the mark of the primary's life.
async fn a_promoted_replica_grants_nothing_that_may_still_be_believed(lab: &Lab) -> Result<()> {
    for name in ["get-lock", "for-update"] {
        let recipe = Recipe { kind: Kind::MariaDb, name };
        let first = lab.mariadb().config("--log-bin=changes").config("--server-id=1").start()?;
        let plan = lab.mariadb().config("--log-bin=changes").config("--server-id=2");
        let second = plan.start()?;
        let follow = format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, \
             MASTER_USER = 'lockkeeper', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos",
            first.port()
        );
        mariadb::query(second.port(), &follow)?;
        mariadb::query(second.port(), "START SLAVE")?;
        let one = recipe.keeper(&first.url(), "session=8s").await?;
        let guard = one.lock("promoted").ttl(LONG).acquire().await?;
        let table = recipe.holders();
        let arrived = format!("SELECT name FROM {table} WHERE name = 'promoted'");
        let arrived = async || {
            let rows = mariadb::query(second.port(), &arrived).unwrap_or_default();
            Ok((!rows.is_empty()).then_some(()))
        };
        eventually("the replica has the row of the holder", arrived).await;
        first.pause()?;
        mariadb::query(second.port(), "STOP SLAVE")?;
        // What was replicated says that the holder may believe, and so would keep others out. The
        // mark of the life must do so alone: the last renewals may be missing.
        mariadb::query(second.port(), &format!("UPDATE {table} SET believed = 0"))?;
        let two = recipe.keeper(&second.url(), "session=2s").await?;
        let mut early = 0;
        while guard.is_held() {
            let taken = two.lock("promoted").try_acquire().await?;
            ensure!(taken.is_none() || !guard.is_held(), "{name}: two hold it");
            early += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(early > 3, "unknown: the promotion took longer than the lease");
        let next = two.lock("promoted").ttl(LONG).acquire_within(PATIENT).await?;
        ensure!(next.token() > guard.token(), "{name}: the tokens went back");
        next.release().await?;
        first.resume()?;
    }
    Ok(())
}
