//! A name that passes from one claim of a keeper to the next before the server hears of it.

use crate::{LONG, PATIENT, cases, eventually, far_keeper, keeper, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::event::{EventKind, Events};
use lockkeeper::{ErrorKind, Guard, Keeper, Owner};
use lockkeeper_lab::proxy::{Direction, Flow};
use lockkeeper_lab::server::Lab;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

cases!(
    the_next_begins_while_the_server_is_paused,
    nothing_is_passed_on_long_after_the_servers_last_word,
    nothing_is_passed_on_when_the_connection_broke,
    a_word_that_is_lost_is_said_again,
    an_heir_of_what_is_gone_is_told,
    what_was_passed_on_can_be_broken,
    one_that_was_broken_unheard_of_starts_no_other,
    tokens_of_those_unheard_of_are_not_given_again,
    no_one_is_passed_over,
    an_heir_with_a_name_waits_for_the_server,
    a_successor_renews_while_memory_is_full,
    a_word_that_comes_late_takes_nothing_away,
    events_tell_of_one_holder_at_a_time,
    an_owner_that_was_not_named_is_not_entered_again,
);

type Waiter = JoinHandle<lockkeeper::Result<Guard>>;

fn wait_for(keeper: &Keeper, name: &str, ttl: Duration) -> Waiter {
    let lock = keeper.lock(name).ttl(ttl);
    tokio::spawn(async move { lock.acquire_within(PATIENT).await })
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
    let events = keeper.events();
    gate.release().await?;
    let first = waiters.remove(0).await??;
    // A name is kept for a short time at first, which a busy machine may use up.
    renewed(events).await?;
    let (second, third) = (waiters.remove(0), waiters.remove(0));
    Ok((first, second, third))
}

async fn renewed(mut events: Events) -> Result<()> {
    let renewed = async {
        while events.next().await.context("events")?.kind != EventKind::Renewed {}
        Ok(())
    };
    timeout(PATIENT, renewed).await.context("a renewal")?
}

/// Makes attempts at passing a name on. On a machine that is too busy the time may pass in which
/// that can be; then another name is tried.
async fn until_passed_on(attempt: impl AsyncFn(&str) -> Result<Passed>) -> Result<()> {
    for number in 0..10 {
        if let Passed::Yes = attempt(&format!("passed on/{number}")).await? {
            return Ok(());
        }
    }
    anyhow::bail!("unknown: never was a name passed on")
}

enum Passed {
    Yes,
    TooLate,
}

/// The next one, if it began although the server cannot say so.
async fn begun(next: Waiter) -> Result<Option<Guard>> {
    timeout(PATIENT / 4, next).await.ok().transpose()?.transpose().map_err(Into::into)
}

async fn the_next_begins_while_the_server_is_paused(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    until_passed_on(async |name| {
        let (first, second, third) = line(&one, &two, name, LONG).await?;
        let before = first.token();
        server.pause()?;
        let released = tokio::spawn(first.release());
        let second = begun(second).await?;
        let answered = released.is_finished();
        server.resume()?;
        let Some(second) = second else { return Ok(Passed::TooLate) };
        assert!(!answered, "the server was paused");
        released.await??;
        assert!(second.token() > before, "tokens grow");
        let view = two.show(name).await?;
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 1), "{view:?}");
        assert_eq!(view.holders[0].token, second.token());
        assert!(two.lock(name).try_acquire().await?.is_none(), "it is held");
        second.release().await?;
        third.await??.release().await?;
        ensure!(two.show(name).await?.holders.is_empty(), "all have given it back");
        Ok(Passed::Yes)
    })
    .await
}

async fn nothing_is_passed_on_long_after_the_servers_last_word(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let (first, mut second, third) = line(&one, &two, "long ago", LONG).await?;
    // Meanwhile there may be another primary, which grants to others.
    tokio::time::sleep(Duration::from_millis(150)).await;
    server.pause()?;
    let released = tokio::spawn(first.release());
    let early = timeout(Duration::from_millis(500), &mut second).await;
    server.resume()?;
    ensure!(early.is_err(), "it began on a word of long ago");
    released.await??;
    second.await??.release().await?;
    third.await??.release().await?;
    Ok(())
}

async fn nothing_is_passed_on_when_the_connection_broke(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, proxy) = far_keeper(&server).await?;
    let two = keeper(&server).await?;
    let (first, mut second, third) = line(&one, &two, "broke", LONG).await?;
    proxy.control().refuse(true);
    proxy.control().reset();
    // It finds out by asking, at the latest.
    let _ = one.show("broke").await;
    let released = tokio::spawn(first.release());
    let early = timeout(Duration::from_millis(500), &mut second).await;
    proxy.control().heal();
    ensure!(early.is_err(), "it began although nobody can say who is primary");
    // Refused at first, it is tried again.
    let _ = released.await?;
    second.await??.release().await?;
    third.await??.release().await?;
    Ok(())
}

async fn a_word_that_is_lost_is_said_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, proxy) = far_keeper(&server).await?;
    let two = keeper(&server).await?;
    until_passed_on(async |name| {
        let (first, second, third) = line(&one, &two, name, LONG).await?;
        let on_record = first.token();
        proxy.control().partition();
        let released = tokio::spawn(first.release());
        let second = begun(second).await?;
        let view = two.show(name).await?;
        proxy.control().reset();
        proxy.control().heal();
        let Some(second) = second else { return Ok(Passed::TooLate) };
        assert_eq!(view.holders[0].token, on_record, "the server had not heard");
        has_heard_of(&two, name, &second).await;
        released.await??;
        assert!(!second.lost().is_signalled());
        second.release().await?;
        third.await??.release().await?;
        ensure!(two.lock(name).try_acquire().await?.is_some(), "it was given back");
        Ok(Passed::Yes)
    })
    .await
}

async fn has_heard_of(keeper: &Keeper, name: &str, successor: &Guard) {
    eventually("the server has heard", async || {
        let view = keeper.show(name).await?;
        let holder = view.holders.first().context("a holder")?;
        Ok((holder.token == successor.token()).then_some(()))
    })
    .await;
}

async fn an_heir_of_what_is_gone_is_told(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    until_passed_on(async |name| {
        let (first, second, third) = line(&one, &two, name, LONG).await?;
        server.redis()?.ask(&["FLUSHALL"])?;
        let stranger = two.lock(name).ttl(LONG).acquire_within(PATIENT).await?;
        let error = first.release().await.expect_err("it was gone before");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        let Some(second) = begun(second).await? else { return Ok(Passed::TooLate) };
        if second.token() > stranger.token() {
            // Not passed on: it waited for its turn after the stranger's.
            return Ok(Passed::TooLate);
        }
        timeout(PATIENT, second.lost()).await.context("told of the loss")?;
        assert!(second.release().await.is_err());
        assert_eq!(two.show(name).await?.holders[0].token, stranger.token());
        stranger.release().await?;
        third.await??.release().await?;
        Ok(Passed::Yes)
    })
    .await
}

async fn what_was_passed_on_can_be_broken(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let (first, second, third) = line(&one, &two, "broken", LONG).await?;
    first.release().await?;
    let second = second.await??;
    let token = second.token().context("a token")?;
    two.break_hold("broken", token, "to see it").await?;
    timeout(PATIENT, second.lost()).await.context("told of the loss")?;
    let third = third.await??;
    assert!(third.token() > second.token());
    assert!(second.release().await.is_err());
    assert_eq!(two.show("broken").await?.holders[0].token, third.token());
    third.release().await?;
    Ok(())
}

async fn one_that_was_broken_unheard_of_starts_no_other(lab: &Lab) -> Result<()> {
    // This server publishes nothing: a break is found out at the next renewal.
    let server = lab.redis().config("rename-command PUBLISH \"\"").start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let (first, second, mut third) = line(&one, &two, "unheard", LONG).await?;
    two.break_hold("unheard", first.token().context("a token")?, "").await?;
    let second = second.await??;
    assert!(!first.lost().is_signalled(), "unknown: it was heard of");
    server.pause()?;
    let released = tokio::spawn(first.release());
    let early = timeout(Duration::from_millis(300), &mut third).await;
    server.resume()?;
    ensure!(early.is_err(), "the second one has it");
    let error = released.await?.expect_err("it was broken before");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(two.show("unheard").await?.holders[0].token, second.token());
    second.release().await?;
    third.await??.release().await?;
    Ok(())
}

async fn tokens_of_those_unheard_of_are_not_given_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    let two = keeper(&server).await?;
    let ttl = Duration::from_secs(4);
    until_passed_on(async |name| {
        let (one, proxy) = far_keeper(&server).await?;
        server.set_clock_back(Duration::ZERO)?;
        let (first, second, third) = line(&one, &two, name, ttl).await?;
        let stranger = wait_for(&two, name, ttl);
        waiting(&two, name, 3).await;
        // So that tokens grow by counting.
        server.set_clock_back(Duration::from_secs(3600))?;
        renewed(one.events()).await?;
        proxy.control().partition();
        tokio::spawn(first.release());
        let Some(second) = begun(second).await? else { return Ok(Passed::TooLate) };
        tokio::spawn(second.release());
        let Some(third) = begun(third).await? else { return Ok(Passed::TooLate) };
        // Struck off, as those are whose keeper sends no heartbeat.
        server.redis()?.ask(&["LPOP", &format!("lockkeeper:{{{name}}}:queue"), "2"])?;
        let stranger = stranger.await??;
        assert!(third.token() < stranger.token(), "{:?} {:?}", third.token(), stranger.token());
        Ok(Passed::Yes)
    })
    .await
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

async fn an_heir_with_a_name_waits_for_the_server(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let gate = one.lock("named").ttl(LONG).acquire().await?;
    let first = wait_for(&one, "named", LONG);
    waiting(&two, "named", 1).await;
    let bob = one.owner("bob");
    let lock = one.lock("named").ttl(LONG).owner(&bob);
    let mut second = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    waiting(&two, "named", 2).await;
    gate.release().await?;
    let first = first.await??;
    server.pause()?;
    let released = tokio::spawn(first.release());
    let early = timeout(Duration::from_millis(300), &mut second).await;
    server.resume()?;
    ensure!(early.is_err(), "only the store can tell whether its owner is in elsewhere");
    released.await??;
    let second = second.await??;
    let again = two.lock("named").ttl(LONG).owner(&bob).try_acquire().await?;
    assert_eq!(again.context("its owner enters from elsewhere")?.token(), second.token());
    Ok(())
}

async fn a_successor_renews_while_memory_is_full(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, proxy) = far_keeper(&server).await?;
    let two = keeper(&server).await?;
    // So that the server knows the script.
    let (first, second, third) = line(&two, &one, "other", LONG).await?;
    first.release().await?;
    second.await??.release().await?;
    third.await??.release().await?;
    until_passed_on(async |name| {
        let (first, second, third) = line(&one, &two, name, LONG).await?;
        let mut events = one.events();
        // The server hears of the successor, and cannot say so.
        proxy.control().set(Direction::ToClient, Flow::Hold);
        let released = tokio::spawn(first.release());
        let Some(second) = begun(second).await? else {
            proxy.control().heal();
            return Ok(Passed::TooLate);
        };
        has_heard_of(&two, name, &second).await;
        server.redis()?.ask(&["CONFIG", "SET", "maxmemory", "1"])?;
        proxy.control().reset();
        proxy.control().heal();
        released.await??;
        loop {
            let event = timeout(PATIENT, events.next()).await?.context("events")?;
            match event.kind {
                _ if event.token != second.token() => {}
                EventKind::Renewed => break,
                // The connection was broken, and made anew.
                EventKind::InJeopardy { .. } | EventKind::Reconnected { .. } => {}
                EventKind::Acquired => {}
                other => anyhow::bail!("{other:?}"),
            }
        }
        second.release().await?;
        third.await??.release().await?;
        Ok(Passed::Yes)
    })
    .await
}

async fn a_word_that_comes_late_takes_nothing_away(lab: &Lab) -> Result<()> {
    // As Redis gets it, with a name of someone who had it before.
    let script = [
        include_str!("../../../lockkeeper/src/backend/redis/queue/successors.lua"),
        include_str!("../../../lockkeeper/src/backend/redis/queue/hand_over.lua"),
        include_str!("../../../lockkeeper/src/backend/redis/queue/lib.lua"),
        include_str!("../../../lockkeeper/src/backend/redis/queue/hand_over_full.lua"),
    ]
    .concat();
    let server = lab.redis().start()?;
    let one = keeper(&server).await?;
    let held = one.lock("late").ttl(LONG).acquire().await?;
    let (token, id) = (held.token().context("a token")?.to_string(), held.owner().id());
    let keys = ["lockkeeper:{late}", "lockkeeper:{late}:queue", "lockkeeper:{late}:state"];
    let words = [&["EVAL", &script, "3"], &keys[..], &[id, &token, "2000", "", "abc ", "00"]];
    server.redis()?.ask(&words.concat())?;
    let view = one.show("late").await?;
    let left = view.holders.first().context("still held")?.expires_in;
    assert!(left > LONG / 2, "{left:?} are left");
    // Nor from one who has come after all of those.
    let words = [&["EVAL", &script, "3"], &keys[..], &["abc", "7", "2000", "", "def ", "00"]];
    let said = server.redis()?.ask(&words.concat())?;
    assert_eq!(said.number(), Some(0), "there was nothing to pass on");
    assert_eq!(one.show("late").await?.holders[0].token, held.token());
    // A token ahead of the clock is remembered for when the lock is forgotten.
    let an_hour = 3_600_000_000;
    let (ahead, before) = ((token.parse::<u64>()? + an_hour).to_string(), format!("{id} "));
    let record = "abc\nx\n30000\nabc\n\n";
    server.redis()?.ask(&["RPUSH", keys[1], &format!("abc\n0\n1\n{record}")])?;
    let words =
        [&["EVAL", &script, "3"], &keys[..], &["abc", &ahead, "2000", record, &before, "00"]];
    server.redis()?.ask(&words.concat())?;
    let kept = server.redis()?.ask(&["HGET", keys[2], "t"])?;
    assert_eq!(kept.text(), Some(&*ahead));
    Ok(())
}

async fn events_tell_of_one_holder_at_a_time(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let one = keeper(&server).await?;
    let mut events = one.events();
    // The next turn is asked for, and queued, before this one ends: the order of events is promised
    // for hand-overs, not for a release that meets a new claim on its way.
    let watcher = keeper(&server).await?;
    let turns = |keeper: Keeper, watcher: Keeper| async move {
        let mut next = wait_for(&keeper, "told", LONG);
        for turn in 1..=20 {
            let guard = next.await??;
            if turn == 20 {
                return Ok(guard.release().await?);
            }
            next = wait_for(&keeper, "told", LONG);
            while watcher.show("told").await?.waiters.is_empty() {}
            guard.release().await?;
        }
        anyhow::Ok(())
    };
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(turns(one.clone(), watcher.clone()))).collect();
    let (mut holder, mut releases) = (None, 0);
    while releases < 8 * 20 {
        let event = timeout(PATIENT, events.next()).await?.context("events")?;
        match event.kind {
            EventKind::Acquired => {
                let before = holder.replace(event.token);
                ensure!(before.is_none(), "{before:?} had it when {:?} got it", event.token);
            }
            EventKind::Released => {
                releases += 1;
                ensure!(holder.take() == Some(event.token), "{event:?}");
            }
            _ => {}
        }
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn an_owner_that_was_not_named_is_not_entered_again(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let (one, two) = (keeper(&server).await?, keeper(&server).await?);
    let named = one.owner("named");
    for (lock, enters) in [(one.lock("owned"), false), (one.lock("owned").owner(&named), true)] {
        let held = lock.ttl(LONG).acquire().await?;
        let owner = Owner::new(held.owner().id())?;
        let again = two.lock("owned").ttl(LONG).owner(&owner).try_acquire().await?;
        assert_eq!(again.is_some(), enters);
        if let Some(again) = again {
            again.release().await?;
        }
        held.release().await?;
    }
    Ok(())
}
