//! A name that passes from one claim of a keeper to the next before the server hears of it.

use crate::likeness::Dice;
use crate::{LONG, PATIENT, cases, eventually, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::event::What;
use lockkeeper::{Guard, Keeper, Owner};
use lockkeeper_lab::proxy::Proxy;
use lockkeeper_lab::server::{Lab, Server};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

cases!(
    the_next_begins_while_the_server_is_paused,
    a_word_that_is_lost_is_said_again,
    an_heir_of_what_is_gone_is_told,
    what_was_passed_on_can_be_broken,
    tokens_of_those_unheard_of_are_not_given_again,
    no_one_is_passed_over,
    those_who_give_up_leave_nothing_behind,
    an_owner_that_was_not_named_is_not_entered_again,
);

type Waiter = JoinHandle<lockkeeper::Result<Guard>>;

fn wait_for(keeper: &Keeper, name: &str, ttl: Duration) -> Waiter {
    let lock = keeper.lock(name).ttl(ttl);
    tokio::spawn(async move { lock.acquire_within(PATIENT).await })
}

async fn waiting(keeper: &Keeper, name: &str, count: usize) {
    let wait = async || Ok((keeper.show(name).await?.waiters.len() == count).then_some(()));
    eventually("they wait", wait).await;
}

/// One who holds the name, knows who comes next, and has just been vouched for; and those who come
/// next. All are of one keeper; `watcher` looks.
async fn line(
    keeper: &Keeper,
    watcher: &Keeper,
    name: &str,
    ttl: Duration,
) -> Result<(Guard, Waiter, Waiter)> {
    let gate = keeper.lock(name).ttl(LONG).acquire().await?;
    let mut waiters = Vec::new();
    for number in 1..=3 {
        waiters.push(wait_for(keeper, name, ttl));
        waiting(watcher, name, number).await;
    }
    let mut events = keeper.events();
    gate.release().await?;
    let first = waiters.remove(0).await??;
    // A name is kept for a short time at first, which a busy machine may use up.
    let renewed = async {
        while events.next().await.context("events")?.what != What::Renewed {}
        anyhow::Ok(())
    };
    timeout(PATIENT, renewed).await.context("a renewal")??;
    let (second, third) = (waiters.remove(0), waiters.remove(0));
    Ok((first, second, third))
}

/// A keeper whose way to the server can be cut.
async fn far_keeper(server: &Server) -> Result<(Keeper, Proxy)> {
    let upstream = server.address().parse()?;
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(upstream, 1)).await??;
    let url = format!("redis://{}", proxy.control().address());
    Ok((lockkeeper::connect(&url).await?, proxy))
}

async fn the_next_begins_while_the_server_is_paused(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let (first, second, third) = line(&one, &two, "passing", LONG).await?;
    let before = first.token();
    server.pause()?;
    let released = tokio::spawn(first.release());
    let second = timeout(PATIENT / 4, second).await.context("the next one")???;
    assert!(!released.is_finished(), "the server was paused");
    server.resume()?;
    released.await??;
    assert!(second.token() > before, "tokens grow");
    let view = two.show("passing").await?;
    assert_eq!((view.holders.len(), view.waiters.len()), (1, 1), "{view:?}");
    assert_eq!(view.holders[0].token, second.token());
    assert!(two.lock("passing").try_acquire().await?.is_none(), "it is held");
    second.release().await?;
    third.await??.release().await?;
    ensure!(two.show("passing").await?.holders.is_empty(), "all have given it back");
    Ok(())
}

async fn a_word_that_is_lost_is_said_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, proxy) = far_keeper(&server).await?;
    let two = keeper(&server).await?;
    let (first, second, third) = line(&one, &two, "lost", LONG).await?;
    let on_record = first.token();
    proxy.control().partition();
    let released = tokio::spawn(first.release());
    let second = timeout(PATIENT / 4, second).await.context("the next one")???;
    assert_eq!(two.show("lost").await?.holders[0].token, on_record, "the server has not heard");
    proxy.control().reset();
    proxy.control().heal();
    eventually("the server has heard", async || {
        Ok((two.show("lost").await?.holders[0].token == second.token()).then_some(()))
    })
    .await;
    released.await??;
    assert!(!second.lost().is_cancelled());
    second.release().await?;
    third.await??.release().await?;
    ensure!(two.lock("lost").try_acquire().await?.is_some(), "it was given back");
    Ok(())
}

async fn an_heir_of_what_is_gone_is_told(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let (first, second, third) = line(&one, &two, "gone", LONG).await?;
    server.redis()?.ask(&["FLUSHALL"])?;
    let stranger = two.lock("gone").ttl(LONG).acquire_within(PATIENT).await?;
    first.release().await?;
    let second = second.await??;
    // Whoever did not take it over stands in line again and gets it when the stranger is done.
    if second.token() < stranger.token() {
        timeout(PATIENT, second.lost().cancelled()).await.context("told of the loss")?;
        assert!(second.release().await.is_err());
        assert_eq!(two.show("gone").await?.holders[0].token, stranger.token());
    }
    stranger.release().await?;
    third.await??.release().await?;
    Ok(())
}

async fn what_was_passed_on_can_be_broken(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let (first, second, third) = line(&one, &two, "broken", LONG).await?;
    first.release().await?;
    let second = second.await??;
    let token = second.token().context("a token")?;
    two.break_hold("broken", token, "to see it").await?;
    timeout(PATIENT, second.lost().cancelled()).await.context("told of the loss")?;
    let third = third.await??;
    assert!(third.token() > second.token());
    assert!(second.release().await.is_err());
    assert_eq!(two.show("broken").await?.holders[0].token, third.token());
    third.release().await?;
    Ok(())
}

async fn tokens_of_those_unheard_of_are_not_given_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    let two = keeper(&server).await?;
    let ttl = Duration::from_secs(4);
    for attempt in 0..5 {
        let (name, (one, proxy)) = (format!("unheard/{attempt}"), far_keeper(&server).await?);
        server.set_clock_back(Duration::ZERO)?;
        let (first, second, third) = line(&one, &two, &name, ttl).await?;
        let stranger = wait_for(&two, &name, ttl);
        waiting(&two, &name, 3).await;
        // So that tokens grow by counting.
        server.set_clock_back(Duration::from_secs(3600))?;
        proxy.control().partition();
        tokio::spawn(first.release());
        let second = timeout(PATIENT / 4, second).await.context("the next one")???;
        tokio::spawn(second.release());
        // A machine that is too busy lets the time pass in which it may be passed on.
        if let Ok(third) = timeout(ttl / 4, third).await {
            // Struck off, as those are whose keeper gives no sign of life.
            server.redis()?.ask(&["LPOP", &format!("lockkeeper:{{{name}}}:queue"), "2"])?;
            let (third, stranger) = (third??, stranger.await??);
            assert!(third.token() < stranger.token(), "{:?} {:?}", third.token(), stranger.token());
            return Ok(());
        }
    }
    anyhow::bail!("unknown: never were two unheard of")
}

async fn no_one_is_passed_over(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let gate = one.lock("order").ttl(LONG).acquire().await?;
    let (order, mut waiters) = (Arc::new(Mutex::new(String::new())), Vec::new());
    for (number, whose) in "aaabaabbbabaaaaaaaaaaaaab".chars().enumerate() {
        let lock = if whose == 'a' { &one } else { &two }.lock("order").ttl(LONG);
        let order = order.clone();
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire_within(PATIENT).await?;
            order.lock().expect("no panic").push(whose);
            guard.release().await
        }));
        waiting(&two, "order", number + 1).await;
    }
    gate.release().await?;
    for waiter in waiters {
        waiter.await??;
    }
    assert_eq!(*order.lock().expect("no panic"), "aaabaabbbabaaaaaaaaaaaaab");
    Ok(())
}

async fn those_who_give_up_leave_nothing_behind(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keepers = [keeper(&server).await?, keeper(&server).await?];
    let (inside, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let held = Arc::new(AtomicUsize::new(0));
    let turns = |keeper: Keeper, seed: u64| {
        let (inside, last, held) = (inside.clone(), last.clone(), held.clone());
        async move {
            let mut dice = Dice(seed);
            for _ in 0..150 {
                let patience = Duration::from_micros(dice.roll(4000));
                let lock = keeper.lock("given up").ttl(LONG);
                let guard = match dice.roll(2) {
                    0 => lock.acquire_within(patience).await.ok(),
                    _ => timeout(patience, lock.acquire()).await.ok().transpose()?,
                };
                let Some(guard) = guard else { continue };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                let before = last.lock().expect("no panic").replace(guard.token());
                assert!(before.is_none_or(|before| before < guard.token()), "tokens grow");
                held.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_micros(dice.roll(300))).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await?;
            }
            anyhow::Ok(())
        }
    };
    let tasks: Vec<_> = (0..12)
        .map(|number| tokio::spawn(turns(keepers[usize::from(number > 6)].clone(), number)))
        .collect();
    for task in tasks {
        task.await??;
    }
    let held = held.load(Ordering::SeqCst);
    ensure!((100..1800).contains(&held), "unknown: {held} of 1800 had their turn");
    for keeper in &keepers {
        keeper.close(PATIENT).await;
    }
    let view = keeper(&server).await?.show("given up").await?;
    assert!(view.holders.is_empty() && view.waiters.is_empty(), "{view:?}");
    Ok(())
}

async fn an_owner_that_was_not_named_is_not_entered_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let named = one.owner("named");
    for (lock, enters) in [(one.lock("owned"), false), (one.lock("owned").owner(&named), true)] {
        let held = lock.ttl(LONG).acquire().await?;
        let owner = Owner::resume(held.owner().id())?;
        let again = two.lock("owned").ttl(LONG).owner(&owner).try_acquire().await?;
        assert_eq!(again.is_some(), enters);
        if let Some(again) = again {
            again.release().await?;
        }
        held.release().await?;
    }
    Ok(())
}
