//! `table` behind pgbouncer in transaction mode, where no session is ours for longer than a
//! statement takes.

use crate::sql::{LONG, PATIENT, queue_of, waiting};
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;

cases!(
    table_works_behind_a_pooler,
    table_works_behind_a_pooler_that_swallows_settings,
    table_works_behind_a_pooler_that_is_announced,
);

async fn table_works_behind_a_pooler(lab: &Lab) -> Result<()> {
    locks_are_locks(lab, "", "").await
}

async fn table_works_behind_a_pooler_that_swallows_settings(lab: &Lab) -> Result<()> {
    locks_are_locks(lab, "ignore_startup_parameters = options, extra_float_digits", "").await
}

async fn table_works_behind_a_pooler_that_is_announced(lab: &Lab) -> Result<()> {
    locks_are_locks(lab, "", "?pooler=true").await
}

/// Two keepers behind the pooler, and one beside it on the server itself.
async fn locks_are_locks(lab: &Lab, line: &str, options: &str) -> Result<()> {
    let server = lab.postgres().start()?;
    let bouncer = lab.pgbouncer(server.port()).config(line).start()?;
    let url = format!("{}{options}", bouncer.url());
    let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
    let beside = lockkeeper::connect(&server.url()).await?;
    let mut last = None;
    for round in 0..20 {
        let held = one.lock("pooled").ttl(LONG).acquire_within(PATIENT).await?;
        ensure!(held.token() > last, "{:?} after {last:?}", held.token());
        ensure!(two.lock("pooled").try_acquire().await?.is_none(), "two hold it");
        ensure!(beside.lock("pooled").try_acquire().await?.is_none(), "two hold it");
        let next = waiting(if round % 2 == 0 { &two } else { &beside }, "pooled");
        queue_of(&one, "pooled", 1).await;
        last = held.token();
        held.release().await?;
        let next = next.await??;
        ensure!(next.token() > last, "{:?} after {last:?}", next.token());
        last = next.token();
        next.release().await?;
    }
    // Many at once, so that the pooler gives each statement whichever session is idle.
    let all = (0..40).map(|number| {
        let lock = one.lock(format!("many/{}", number % 8)).ttl(LONG);
        tokio::spawn(async move { lock.acquire_within(PATIENT).await?.release().await })
    });
    for each in all.collect::<Vec<_>>() {
        each.await??;
    }
    Ok(())
}
