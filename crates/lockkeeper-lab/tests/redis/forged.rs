//! Messages and tokens that the server never gave.

use crate::{LONG, PATIENT, cases, eventually, keeper, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::Keeper;
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;
use tokio::time::{sleep, timeout};

cases!(
    an_id_seen_before_tells_nothing_of_the_next,
    an_id_that_may_have_been_published_is_not_enough,
    an_absurd_token_of_a_message_is_not_believed,
    an_absurd_token_in_the_store_is_healed,
    a_token_far_ahead_of_the_clock_stays_with_its_name,
);

/// Tells every keeper that these claims were granted.
fn forge(server: &Server, ids: &[String], token: &str) -> Result<()> {
    let mut redis = server.redis()?;
    let channels = redis.ask(&["PUBSUB", "CHANNELS", "lockkeeper:keeper:*"])?;
    for channel in channels.list().context("channels")?.iter().filter_map(|said| said.text()) {
        for id in ids {
            // As long and as short as such a message was ever said to be.
            for tail in ["", " lockkeeper:{forged}"] {
                redis.ask(&["PUBLISH", channel, &format!("granted {id} {token}{tail}")])?;
            }
        }
    }
    Ok(())
}

/// A token that the server might give now.
fn plausible(server: &Server) -> Result<String> {
    let said = server.redis()?.ask(&["TIME"])?;
    let words: Vec<u64> = said
        .list()
        .context("a time")?
        .iter()
        .filter_map(|word| word.text()?.parse().ok())
        .collect();
    Ok((words[0] * 1_000_000 + words[1]).to_string())
}

/// The id of the first who waits: its owner was not named.
async fn id_of_waiter(keeper: &Keeper) -> Result<String> {
    let view = keeper.show("forged").await?;
    Ok(view.waiters.first().context("a waiter")?.owner.id().to_owned())
}

async fn an_id_seen_before_tells_nothing_of_the_next(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    // What anyone hears who may subscribe: the ids of those that were granted.
    let first = two.lock("forged").ttl(LONG).acquire().await?;
    let seen = u128::from_str_radix(first.owner().id(), 16)?;
    first.release().await?;
    let held = one.lock("forged").ttl(LONG).acquire().await?;
    let lock = two.lock("forged").ttl(LONG);
    let mut waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&one, "forged", 1).await;
    let guesses: Vec<_> =
        (1..=64).map(|step| format!("{:032x}", seen.wrapping_add(step))).collect();
    forge(&server, &guesses, &plausible(&server)?)?;
    let early = timeout(Duration::from_millis(500), &mut waiter).await;
    ensure!(early.is_err(), "a grant was believed that anyone could have told");
    held.release().await?;
    waiter.await??.release().await?;
    Ok(())
}

async fn an_id_that_may_have_been_published_is_not_enough(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("forged").ttl(LONG).acquire().await?;
    let lock = two.lock("forged").ttl(LONG);
    let mut waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&one, "forged", 1).await;
    // Its keeper hears nothing for a moment: it may have been told of a grant that is over, and
    // others heard it.
    server.redis()?.ask(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    eventually("both listen again", async || {
        let channels = server.redis()?.ask(&["PUBSUB", "CHANNELS", "lockkeeper:keeper:*"])?;
        Ok((channels.list().context("channels")?.len() == 2).then_some(()))
    })
    .await;
    sleep(Duration::from_millis(200)).await;
    let id = id_of_waiter(&one).await?;
    forge(&server, &[id], &plausible(&server)?)?;
    let early = timeout(Duration::from_millis(500), &mut waiter).await;
    ensure!(early.is_err(), "a grant was believed that the server did not confirm");
    ensure!(one.show("forged").await?.waiters.len() == 1, "it lost its place");
    held.release().await?;
    waiter.await??.release().await?;
    Ok(())
}

async fn an_absurd_token_of_a_message_is_not_believed(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("forged").ttl(LONG).acquire().await?;
    let lock = two.lock("forged").ttl(LONG);
    let mut waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&one, "forged", 1).await;
    let id = id_of_waiter(&one).await?;
    let tomorrow = (plausible(&server)?.parse::<u64>()? + 86_400_000_000).to_string();
    for token in ["18446744073709551615", "9007199254740992", &tomorrow] {
        forge(&server, std::slice::from_ref(&id), token)?;
        let early = timeout(Duration::from_millis(200), &mut waiter).await;
        ensure!(early.is_err(), "a grant with the token {token} was believed");
    }
    held.release().await?;
    let got = waiter.await??;
    ensure!(got.token().context("a token")?.get() < tomorrow.parse()?, "{:?}", got.token());
    got.release().await?;
    // Nothing of it is carried on.
    for name in ["forged", "another"] {
        for keeper in [&two, &one] {
            keeper.lock(name).ttl(LONG).acquire_within(PATIENT).await?.release().await?;
        }
    }
    Ok(())
}

async fn an_absurd_token_in_the_store_is_healed(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let mut redis = server.redis()?;
    let far = "18446744073709551615";
    redis.ask(&["SET", "lockkeeper:{free}", &format!("F{far}"), "PX", "60000"])?;
    redis.ask(&["HSET", "lockkeeper:{forgotten}:state", "t", far])?;
    let record = format!("{:032x}\n{far}\n0\n{:032x}\nx\n1000\nsomeone\nwhom\nnote", 7, 9);
    redis.ask(&["SET", "lockkeeper:{held}", &format!("X{record}"), "PX", "1000"])?;
    for name in ["free", "forgotten", "held"] {
        let mut last = None;
        for keeper in [&one, &two, &one] {
            let guard = keeper.lock(name).ttl(LONG).acquire_within(PATIENT).await.context(name)?;
            let token = guard.token().context("a token")?;
            ensure!(token.get() < 1 << 53 && Some(token) > last, "{name}: {token}");
            last = Some(token);
            guard.release().await?;
        }
    }
    Ok(())
}

async fn a_token_far_ahead_of_the_clock_stays_with_its_name(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    let keeper = keeper(&server).await?;
    server.set_clock_ahead(Duration::from_secs(10 * 365 * 86_400))?;
    keeper.lock("then").ttl(LONG).acquire().await?.release().await?;
    server.set_clock_ahead(Duration::ZERO)?;
    server.redis()?.ask(&["FLUSHALL"])?;
    for name in ["then", "other", "third"] {
        keeper.lock(name).ttl(LONG).acquire().await?.release().await?;
    }
    let mut redis = server.redis()?;
    let keys = redis.ask(&["KEYS", "*"])?;
    let keys = keys.list().context("keys")?;
    ensure!(!keys.is_empty(), "unknown: nothing was kept");
    for key in keys.iter().filter_map(|key| key.text()) {
        let left = redis.ask(&["PTTL", key])?.number().context("a ttl")?;
        ensure!(left <= 2 * 86_400_000, "{key} is kept for {left} ms");
    }
    Ok(())
}
