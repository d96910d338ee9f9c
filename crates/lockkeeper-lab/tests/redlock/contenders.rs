//! Several keepers that want the same name at the same time.

use super::stage::{CALM, Five, PATIENT, TTL, held};
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};
use lockkeeper_lab::trials::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

cases!(
    three_contenders_on_five_nodes_make_progress,
    one_who_waits_is_told_of_a_release,
    one_who_waits_no_more_is_told_no_more,
);

/// Whether one keeper listens to this server for releases of `a`.
fn is_listened_to(server: &Server) -> Result<bool> {
    let said = server.redis()?.ask(&["PUBSUB", "NUMSUB", "lockkeeper:redlock:free:a"])?;
    Ok(format!("{said:?}").contains("Number(1)"))
}

/// Each of them may get two of five, again and again.
async fn three_contenders_on_five_nodes_make_progress(lab: &Lab) -> Result<()> {
    const EACH: usize = 40;
    let five = Five::start(lab)?;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut contenders = Vec::new();
    for _ in 0..3 {
        let (keeper, inside) = (five.keeper(CALM).await?, inside.clone());
        contenders.push(tokio::spawn(async move {
            let mut last = None;
            for _ in 0..EACH {
                let guard = keeper.lock("a").ttl(TTL).acquire_within(PATIENT).await?;
                let others = inside.fetch_add(1, Ordering::SeqCst);
                ensure!(others == 0, "{others} others are inside");
                ensure!(guard.token() > last, "{:?} after {last:?}", guard.token());
                last = guard.token();
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await?;
            }
            Ok(())
        }));
    }
    for contender in contenders {
        contender.await??;
    }
    Ok(())
}

/// At one node; and at the next when that one is away.
async fn one_who_waits_is_told_of_a_release(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    for away in 0..2 {
        let guard = held(&one).await?;
        let waits = two.lock("a").ttl(TTL);
        let next = tokio::spawn(async move { waits.acquire_within(PATIENT).await });
        let server = &five.servers[away];
        eventually("it listens", async || Ok(is_listened_to(server)?.then_some(()))).await;
        let others = five.servers[away + 1..].iter().map(is_listened_to);
        let others = others.collect::<Result<Vec<_>>>()?;
        ensure!(!others.contains(&true), "it listens to more than one");
        guard.release().await?;
        next.await??.release().await?;
        // The next round listens elsewhere.
        five.servers[away].kill()?;
    }
    Ok(())
}

/// Else every release of a name would be told to every keeper that ever waited for the name.
async fn one_who_waits_no_more_is_told_no_more(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let (one, two) = (five.keeper(CALM).await?, five.keeper(CALM).await?);
    let server = &five.servers[0];
    // More than once: one who waits again listens again.
    for _ in 0..2 {
        let guard = held(&one).await?;
        let waits = two.lock("a").ttl(TTL);
        let next = tokio::spawn(async move { waits.acquire_within(PATIENT).await });
        eventually("it listens", async || Ok(is_listened_to(server)?.then_some(()))).await;
        guard.release().await?;
        next.await??.release().await?;
        eventually("it listens no more", async || {
            held(&one).await?.release().await?;
            Ok((!is_listened_to(server)?).then_some(()))
        })
        .await;
    }
    Ok(())
}
