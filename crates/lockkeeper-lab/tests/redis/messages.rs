//! Messages that never arrive, and waiters that never wake.

use crate::{LONG, PATIENT, cases, eventually, keeper, waiting};
use anyhow::{Context, Result};
use lockkeeper_lab::server::{Lab, Server};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

cases!(
    a_future_that_is_not_polled_does_not_starve_others,
    a_wake_up_that_is_missed_is_made_up_for,
    a_hand_over_within_a_keeper_takes_no_message,
    one_who_was_struck_off_stands_in_line_again,
    one_who_was_struck_off_is_missed_also_where_turns_are_short,
    what_is_got_by_asking_again_lasts,
    a_waiter_whose_keeper_died_costs_its_sign_of_life,
    a_broken_lock_is_heard_of_at_once,
    newcomers_may_go_first_where_the_url_says_so,
);

/// Which channel a keeper listens at, learnt from the one that is subscribed.
fn channels(server: &Server) -> Result<Vec<String>> {
    let said = server.redis()?.ask(&["PUBSUB", "CHANNELS"])?;
    let channels = said.list().context("a list")?.iter();
    Ok(channels.filter_map(|channel| channel.text().map(str::to_owned)).collect())
}

async fn a_wake_up_that_is_missed_is_made_up_for(lab: &Lab) -> Result<()> {
    // This server publishes nothing, also not from a script: every message is missed.
    let server = lab.redis().config("rename-command PUBLISH \"\"").start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let mut held = one.lock("missed").ttl(LONG).acquire().await?;
    for keeper in [&two, &one] {
        let lock = keeper.lock("missed").ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        waiting(&one, "missed", 1).await;
        held.release().await?;
        held = waiter.await??;
    }
    held.release().await?;
    Ok(())
}

/// How many messages the server was asked to send.
fn published(server: &Server) -> Result<u64> {
    let said = server.redis()?.info("commandstats")?;
    let line = said.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
    line.map_or(Ok(0), |line| Ok(line.split(',').next().unwrap_or_default().parse()?))
}

async fn a_hand_over_within_a_keeper_takes_no_message(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    // Exclusive ones, and readers, who are let in together.
    let mut turns = vec![(&one, 0), (&two, 1)];
    let mut tries = 0;
    while let Some((waits, messages)) = turns.pop() {
        let (before, begin) = (published(&server)?, Instant::now());
        let held = one.lock("inside").ttl(LONG).acquire().await?;
        let mut waiters = Vec::new();
        for number in 0..4 {
            let lock = waits.lock("inside").ttl(LONG);
            let read = waits.rw_lock("inside").read().ttl(LONG);
            waiters.push(tokio::spawn(async move {
                match number % 2 {
                    0 => lock.acquire_within(PATIENT).await?.release().await,
                    _ => read.acquire_within(PATIENT).await?.release().await,
                }
            }));
            waiting(&two, "inside", number + 1).await;
        }
        held.release().await?;
        for waiter in waiters {
            waiter.await??;
        }
        let took = begin.elapsed();
        let sent = published(&server)? - before;
        // Those who wait for longer than a heartbeat ask whose the lock is, by message.
        if took > Duration::from_millis(500) && tries < 20 {
            tries += 1;
            turns.push((waits, messages));
            continue;
        }
        // The first of another keeper is told by message; those behind it hear from it.
        assert_eq!(sent, messages);
    }
    Ok(())
}

async fn one_who_was_struck_off_stands_in_line_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("struck").ttl(LONG).acquire().await?;
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let lock = two.lock("struck").ttl(LONG);
            tokio::spawn(async move { lock.acquire_within(PATIENT * 2).await?.release().await })
        })
        .collect();
    waiting(&one, "struck", 2).await;
    // The other one still gives signs of life for both.
    server.redis()?.ask(&["LPOP", "lockkeeper:{struck}:queue"])?;
    assert_eq!(one.show("struck").await?.waiters.len(), 1);
    waiting(&one, "struck", 2).await;
    held.release().await?;
    for waiter in waiters {
        waiter.await??;
    }
    Ok(())
}

async fn one_who_was_struck_off_is_missed_also_where_turns_are_short(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("short").ttl(LONG).acquire().await?;
    let lock = two.lock("short").note("to be struck off").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(LONG).await?.release().await });
    waiting(&one, "short", 1).await;
    // Others of its keeper ask all the time, which shows that the keeper lives.
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..3)
        .map(|_| {
            let (lock, stop) = (two.lock("short").ttl(LONG), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    guard.release().await?;
                }
                Ok::<(), lockkeeper::Error>(())
            })
        })
        .collect();
    waiting(&one, "short", 4).await;
    server.redis()?.ask(&["LPOP", "lockkeeper:{short}:queue"])?;
    held.release().await?;
    waiter.await?.context("it gets its turn while the others go on")?;
    stop.store(true, Ordering::Relaxed);
    for other in others {
        other.await??;
    }
    Ok(())
}

async fn what_is_got_by_asking_again_lasts(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    for barging in [true, false] {
        let url = format!("{}?barging={barging}", server.url());
        let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
        let held = one.lock("again").ttl(LONG).acquire().await?;
        let lock = two.lock("again").ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
        waiting(&one, "again", 1).await;
        held.release().await?;
        let got = waiter.await??;
        // Longer than a heartbeat counts, and shorter than it takes to renew.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert!(one.lock("again").try_acquire().await?.is_none(), "barging={barging}: two hold it");
        assert!(!got.lost().is_signalled());
        got.release().await?;
    }
    Ok(())
}

async fn a_waiter_whose_keeper_died_costs_its_sign_of_life(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("dead").ttl(LONG).acquire().await?;
    // Waiters on a runtime that ends without a word, five of them.
    let url = server.url();
    let dying = std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(async {
            let keeper = lockkeeper::connect(&url).await?;
            for _ in 0..5 {
                let lock = keeper.lock("dead").ttl(LONG);
                tokio::spawn(async move { lock.acquire().await.map(std::mem::forget) });
            }
            waiting(&keeper, "dead", 5).await;
            Ok(())
        })
    });
    dying.join().expect("no panic")?;
    let lock = two.lock("dead").ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    eventually("one more waits", async || {
        let view = two.show("dead").await?;
        Ok(view
            .waiters
            .iter()
            .any(|waiter| waiter.waiting_for < Duration::from_secs(5))
            .then_some(()))
    })
    .await;
    held.release().await?;
    waiter.await??.release().await?;
    Ok(())
}

async fn a_broken_lock_is_heard_of_at_once(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    // So long that no renewal comes between.
    let held = one.lock("broken").ttl(Duration::from_secs(3600)).acquire().await?;
    let token = held.token().context("a token")?;
    assert_eq!(channels(&server)?.len(), 2);
    two.break_hold("broken", token, "the host is on fire").await?;
    tokio::time::timeout(PATIENT, held.lost()).await.context("the message")?;
    let error = held.release().await.expect_err("it was lost");
    assert!(error.to_string().contains("on fire"), "{error}");
    Ok(())
}

async fn newcomers_may_go_first_where_the_url_says_so(lab: &Lab) -> Result<()> {
    // Nobody hears that it is free, so that there is time to go first.
    let server = lab.redis().config("rename-command PUBLISH \"\"").start()?;
    for (barging, expected) in [("true", true), ("false", false)] {
        let url = format!("{}?barging={barging}", server.url());
        let (one, two) = (lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?);
        let mut went_first = false;
        // A waiter that looks just then is faster; not every time.
        for _ in 0..10 {
            let held = one.lock("barging").ttl(LONG).acquire().await?;
            let lock = two.lock("barging").ttl(LONG);
            let waiter = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
            waiting(&one, "barging", 1).await;
            held.release().await?;
            if let Some(first) = one.lock("barging").ttl(LONG).try_acquire().await? {
                went_first = true;
                let waiters = one.show("barging").await?.waiters.len();
                assert_eq!(waiters, 1, "the waiter keeps its place");
                first.release().await?;
            }
            waiter.await??.release().await?;
            if went_first {
                break;
            }
        }
        assert_eq!(went_first, expected, "barging={barging}");
    }
    Ok(())
}

async fn a_future_that_is_not_polled_does_not_starve_others(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let held = one.lock("stalled").ttl(LONG).acquire().await?;
    // Someone who selects over an acquire, and is busy with the other branch.
    let lock = two.lock("stalled").ttl(LONG);
    let mut stalled = Box::pin(async move { lock.acquire().await });
    tokio::select! {
        _ = &mut stalled => anyhow::bail!("held"),
        () = tokio::time::sleep(Duration::from_millis(300)) => {}
    }
    // Another task of the same keeper, well and awake; then someone from elsewhere.
    let order = Arc::new(Mutex::new(Vec::new()));
    let take = |keeper: &lockkeeper::Keeper, label: &'static str| {
        let (lock, order) = (keeper.lock("stalled").ttl(LONG), order.clone());
        tokio::spawn(async move {
            let guard = lock.acquire_within(PATIENT).await?;
            order.lock().expect("no panic").push(label);
            guard.release().await
        })
    };
    let earlier = take(&two, "earlier");
    waiting(&one, "stalled", 2).await;
    // Longer than a waiter counts as alive without a sign.
    tokio::time::sleep(Duration::from_millis(3500)).await;
    let later = take(&one, "later");
    waiting(&one, "stalled", 3).await;
    held.release().await?;
    earlier.await??;
    later.await??;
    drop(stalled);
    assert_eq!(*order.lock().expect("no panic"), ["earlier", "later"]);
    Ok(())
}
