//! Redis without room.

use crate::{LONG, PATIENT, cases, keeper, waiting};
use anyhow::{Context, Result};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(holders_renew_and_release_while_memory_is_full, a_full_disk_is_said_and_passes);

fn fill(server: &Server) -> Result<()> {
    server.limit_memory(1, "noeviction")
}

async fn holders_renew_and_release_while_memory_is_full(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    let short = Duration::from_secs(1);
    let held = keeper.lock("held").ttl(short).acquire().await?;
    let read = keeper.rw_lock("read").read().ttl(short).acquire().await?;
    let also = keeper.rw_lock("read").read().ttl(short).acquire().await?;
    let lock = keeper.lock("held").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&keeper, "held", 1).await;
    fill(&server)?;
    let error = keeper.lock("new").try_acquire().await.expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("full"), "{error}");
    // Three ttls: held only if renewed.
    tokio::time::sleep(short * 3).await;
    for guard in [&held, &read, &also] {
        assert!(!guard.remaining().is_zero(), "{} was lost", guard.name());
    }
    held.release().await?;
    read.release().await?;
    also.release().await?;
    waiter.await?.context("who waits gets it also then")?.release().await?;
    server.limit_memory(0, "noeviction")?;
    assert!(keeper.lock("new").try_acquire().await?.is_some());
    Ok(())
}

async fn a_full_disk_is_said_and_passes(lab: &Lab) -> Result<()> {
    let server = match lab.redis().config("appendonly yes").disk(32 << 20).start() {
        Ok(server) => server,
        Err(error) if error.is::<lockkeeper_lab::server::Unsupported>() => {
            assert!(!nix::unistd::geteuid().is_root(), "root may mount: {error:?}");
            println!("not shown here: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let keeper = keeper(&server).await?;
    server.fill_disk()?;
    let error = crate::eventually("a write is refused", async || {
        server.redis()?.ask(&["SET", "filler", &"x".repeat(100_000)]).ok();
        Ok(keeper.lock("disk").try_acquire().await.err())
    })
    .await;
    assert!(error.to_string().contains("disk"), "{error}");
    server.free_disk()?;
    let again = crate::eventually("writes are taken again", async || {
        Ok(keeper.lock("disk").try_acquire().await?)
    });
    again.await.release().await?;
    Ok(())
}
