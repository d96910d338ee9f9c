//! Others who lock our rows: the deadlocks that they cause are met, and reach nobody.

use super::{keeper, start_with};
use crate::deadlocks;
use crate::intruder::Intruder;
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

cases!(deadlocks_with_others_reach_nobody);

/// Our statements lock the row of a name and then its claims, so ours alone never wait for each
/// other. Another program that locks the claims first makes a deadlock, in which the server ends
/// one of the two. Twelve clients, for a few seconds here and for `LOCKKEEPER_LAB_SECONDS` where
/// that is set.
async fn deadlocks_with_others_reach_nobody(lab: &Lab) -> Result<()> {
    let server = Arc::new(start_with(lab)?);
    let seconds = std::env::var("LOCKKEEPER_LAB_SECONDS").ok().and_then(|it| it.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(4));
    let first = keeper(&server, "").await?;
    let (over, theirs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let mut intruder = Intruder::enter(server.port()).await?;
    let intruding = {
        let (over, theirs) = (over.clone(), theirs.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                theirs.fetch_add(
                    i64::from(intruder.lock_backwards("name").await?),
                    Ordering::Relaxed,
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        })
    };
    let client = |keeper: lockkeeper::Keeper| {
        tokio::spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < until {
                // Whatever goes wrong is an error here, and fails the test.
                keeper.lock("name").acquire_within(super::PATIENT).await?.release().await?;
                done += 1;
            }
            anyhow::Ok(done)
        })
    };
    let mut clients = vec![client(first)];
    for _ in 1..12 {
        clients.push(client(keeper(&server, "").await?));
    }
    let mut done = 0;
    for client in clients {
        done += client.await??;
    }
    over.store(true, Ordering::Relaxed);
    intruding.await??;
    ensure!(done > 12, "unknown: {done} holds");
    let theirs = theirs.load(Ordering::Relaxed);
    // The server adds them up with a delay.
    let counted = eventually("the server counted deadlocks", async || {
        let counted = deadlocks(&server)?;
        Ok((counted > theirs).then_some(counted))
    })
    .await;
    println!("{counted} deadlocks in {done} holds, {theirs} of them ended the other side");
    Ok(())
}
