//! Answers that are lost or late.

use crate::{LONG, PATIENT, cases, eventually, keeper, proxy};
use anyhow::{Result, ensure};
use lockkeeper::Keeper;
use lockkeeper_lab::proxy::{Afterwards, Direction, Flow, Proxy};
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases![
    a_node_whose_making_was_not_answered_is_found,
    one_who_left_before_the_answer_leaves_nothing,
    a_release_that_was_not_answered_is_made_sure_of,
    one_before_us_that_goes_before_it_is_watched_is_not_missed,
];

const RECIPES: [&str; 3] = ["fair", "barging", "ephemeral"];

/// A keeper behind the proxy, which gives requests up soon, and one beside it.
async fn both(proxy: &Proxy, server: &Server, recipe: &str) -> Result<(Keeper, Keeper)> {
    let options = format!("session=10s&timeout=700ms&recipe={recipe}");
    let one = keeper(&format!("zookeeper://{}/{recipe}", proxy.address()), &options).await?;
    Ok((one, keeper(&format!("{}/{recipe}", server.url()), &options).await?))
}

async fn a_node_whose_making_was_not_answered_is_found(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    for recipe in RECIPES {
        let proxy = proxy(&server, 4)?;
        let (one, two) = both(&proxy, &server, recipe).await?;
        one.lock("n").ttl(LONG).acquire().await?.release().await?;
        // One more reply is the look at who holds it, where that comes first.
        let nth = if recipe == "ephemeral" { 2 } else { 1 };
        proxy.swallow_reply(nth, Afterwards::Silence);
        let guard = one.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
        ensure!(proxy.counters().replies_swallowed > 0, "no answer was lost");
        let view = two.show("n").await?;
        let same = view.holders.len() == 1 && view.holders[0].token == guard.token();
        ensure!(same && view.waiters.is_empty(), "{recipe}: {view:?}");
        guard.release().await?;
        let view = two.show("n").await?;
        ensure!(view.holders.is_empty() && view.waiters.is_empty(), "{recipe}: left {view:?}");
    }
    Ok(())
}

async fn one_who_left_before_the_answer_leaves_nothing(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    for recipe in RECIPES {
        let proxy = proxy(&server, 5)?;
        let (one, two) = both(&proxy, &server, recipe).await?;
        one.lock("n").ttl(LONG).acquire().await?.release().await?;
        proxy.set(Direction::ToClient, Flow::Swallow);
        let lock = one.lock("n").ttl(LONG);
        let left = tokio::time::timeout(Duration::from_millis(100), lock.acquire()).await;
        ensure!(left.is_err(), "an answer came through");
        proxy.heal();
        two.lock("n").ttl(LONG).acquire_within(PATIENT).await?.release().await?;
        eventually("nothing is left", async || {
            two.show("n").await.is_ok_and(|v| v.holders.is_empty() && v.waiters.is_empty())
        })
        .await?;
    }
    Ok(())
}

async fn a_release_that_was_not_answered_is_made_sure_of(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    for recipe in RECIPES {
        let proxy = proxy(&server, 6)?;
        let (one, two) = both(&proxy, &server, recipe).await?;
        for direction in Direction::BOTH {
            let guard = one.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
            proxy.set(direction, Flow::Swallow);
            ensure!(guard.release().await.is_err(), "an answer came through");
            proxy.heal();
            let next = two.lock("n").ttl(LONG).acquire_within(PATIENT).await?;
            ensure!(one.close(PATIENT).await, "it insisted on and on");
            ensure!(next.is_held(), "a late release took it from the next");
            ensure!(one.lock("n").try_acquire().await?.is_none(), "two hold it");
            next.release().await?;
        }
    }
    Ok(())
}

async fn one_before_us_that_goes_before_it_is_watched_is_not_missed(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    for recipe in RECIPES {
        let proxy = proxy(&server, 7)?;
        let options = format!("session=20s&timeout=6s&recipe={recipe}");
        let one = keeper(&format!("zookeeper://{}/{recipe}", proxy.address()), &options).await?;
        let two = keeper(&format!("{}/{recipe}", server.url()), &options).await?;
        let guard = two.lock("n").ttl(LONG).acquire().await?;
        // It hears late who is before it, and its wish to watch that is kept until that is gone.
        let base = Duration::from_millis(300);
        proxy.set(Direction::ToClient, Flow::Delay { base, jitter: Duration::ZERO });
        let lock = one.lock("n").ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        tokio::time::sleep(Duration::from_millis(150)).await;
        proxy.set(Direction::ToServer, Flow::Hold);
        tokio::time::sleep(Duration::from_millis(600)).await;
        ensure!(!waiter.is_finished(), "it did not wait");
        guard.release().await?;
        proxy.heal();
        let guard = waiter.await??;
        ensure!(guard.is_held(), "it is not held");
        guard.release().await?;
    }
    Ok(())
}
