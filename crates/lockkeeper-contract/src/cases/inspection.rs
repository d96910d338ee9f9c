//! Inspecting locks, and breaking them.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, SHORT, Stage, most_of_long, ms, queue_of, seen, taken};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::{LockView, Mode};
use lockkeeper::{ErrorKind, FencingToken, Keeper, LossReason};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.inspects {
        return Vec::new();
    }
    let mut cases = cases!("inspection":
        a_holder_is_shown_as_it_is,
        an_owner_that_entered_again_is_shown_once,
        what_is_free_is_shown_empty,
        pages_show_what_the_list_shows,
    );
    if chosen.capability.fair {
        cases.extend(cases!("inspection":
            waiters_are_shown_in_order,
            pages_show_queues_whole,
        ));
    }
    if chosen.capability.shared {
        cases.extend(cases!("inspection": every_reader_is_shown));
    }
    if chosen.capability.fencing {
        cases.extend(cases!("inspection":
            a_broken_hold_tells_its_holder_and_lets_the_next_in,
            a_hold_is_broken_by_its_token_only,
        ));
    }
    // Backends that poll find out only by renewing.
    if chosen.capability.fencing && chosen.capability.notified {
        cases.extend(cases!("inspection": a_hold_broken_before_its_holder_knew_of_it_is_told));
    }
    if chosen.capability.fencing && chosen.capability.reentrant {
        cases.extend(cases!("inspection": breaking_an_owner_breaks_all_its_claims));
    }
    if chosen.capability.fencing && chosen.capability.shared {
        cases.extend(cases!("inspection": breaking_one_reader_leaves_the_others));
    }
    cases
}

/// All locks of all pages.
async fn in_pages(keeper: &Keeper, prefix: &str, limit: usize) -> Outcome<Vec<LockView>> {
    let (mut shown, mut after) = (Vec::new(), None);
    for _ in 0..200 {
        let page = keeper.list_page(prefix, after.as_deref(), limit).await?;
        shown.extend(page.locks);
        after = page.next;
        if after.is_none() {
            return Ok(shown);
        }
    }
    Err(Failure::broken("the pages come to no end"))
}

/// In order; a store that goes by an order of its own may show one twice.
fn names_of(shown: Vec<LockView>) -> Vec<String> {
    let mut names: Vec<String> = shown.into_iter().map(|lock| lock.name.to_string()).collect();
    names.sort();
    names.dedup();
    names
}

async fn pages_show_what_the_list_shows(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let names: Vec<String> = (0..9).map(|number| stage.name(&format!("page {number}"))).collect();
    let held = keeper.multi(&names).ttl(LONG).acquire().await?;
    let _other = keeper.lock(stage.name("other")).ttl(LONG).acquire().await?;
    let prefix = format!("{}page ", names[0].strip_suffix("page 0").unwrap_or_default());
    for limit in [1, 4, 9, 100] {
        let shown = in_pages(&keeper, &prefix, limit).await?;
        for lock in &shown {
            ensure!(!lock.holders.is_empty(), "{lock:?} has no holder");
        }
        let seen = names_of(shown);
        ensure!(seen == names, "pages of {limit} show {seen:?}");
    }
    held.release().await?;
    Ok(())
}

/// Also where a store keeps the claims on a name apart, and those on others between them.
async fn pages_show_queues_whole(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("queue");
    let names: Vec<String> =
        ["", "/1", "/x", "/x/y"].iter().map(|end| format!("{name}{end}")).collect();
    let held = one.multi(&names).ttl(LONG).acquire().await?;
    let mut waiters = Vec::new();
    for number in 1..=3 {
        let lock = two.lock(&name).ttl(LONG).note(&format!("number {number}"));
        waiters
            .push(tokio::spawn(async move { lock.acquire_within(PATIENT).await?.release().await }));
        queue_of(&one, &name, number).await?;
    }
    for limit in [1, 2, 3, 100] {
        let shown = in_pages(&one, &name, limit).await?;
        for lock in &shown {
            let waiting = if lock.name.as_str() == name { 3 } else { 0 };
            ensure!(lock.holders.len() == 1 && lock.waiters.len() == waiting, "{lock:?}");
        }
        let seen = names_of(shown);
        ensure!(seen == names, "pages of {limit} show {seen:?}");
    }
    held.release().await?;
    for waiter in waiters {
        waiter.await??;
    }
    Ok(())
}

async fn a_holder_is_shown_as_it_is(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("shown");
    let guard = one.lock(&name).ttl(LONG).note("why").acquire().await?;
    let view = two.show(&name).await?;
    let [holder] = view.holders.as_slice() else {
        return Err(Failure::broken(format!("one holds it, and shown is {view:?}")));
    };
    ensure!(view.name.as_str() == name && view.waiters.is_empty(), "{view:?}");
    ensure!(holder.owner == *guard.owner() && holder.token == guard.token(), "{holder:?}");
    ensure!(holder.mode == Mode::Exclusive && holder.count == 1, "{holder:?}");
    ensure!(holder.note == "why", "{holder:?}");
    let pid = format!("pid {}", std::process::id());
    ensure!(holder.identity.contains(&pid), "{holder:?}");
    let least = most_of_long(&one.capability());
    ensure!(holder.expires_in <= LONG && holder.expires_in > least, "{holder:?}");
    ensure!(holder.held_for < PATIENT, "{holder:?}");
    ensure!(two.list(stage.prefix()).await?.len() == 1, "it is not listed");
    guard.release().await?;
    Ok(())
}

async fn an_owner_that_entered_again_is_shown_once(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("again");
    let lock = one.lock(&name).ttl(LONG).owner(&one.owner("me")).note("why");
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(lock.acquire().await?);
    }
    // Not every store learns the number of guards, and some learn it late.
    while let Some(guard) = guards.pop() {
        let view = two.show(&name).await?;
        let [holder] = view.holders.as_slice() else {
            return Err(Failure::broken(format!("one holds it, and shown is {view:?}")));
        };
        ensure!((1..=3).contains(&holder.count), "{holder:?}");
        ensure!(holder.owner == *guard.owner() && holder.note == "why", "{holder:?}");
        ensure!(holder.token == guard.token(), "{holder:?}");
        tokio::time::sleep(ms(150)).await;
        guard.release().await?;
    }
    let view = two.show(&name).await?;
    ensure!(view.holders.is_empty(), "{view:?}");
    Ok(())
}

async fn what_is_free_is_shown_empty(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("free");
    for _ in 0..2 {
        let view = keeper.show(&name).await?;
        ensure!(view.holders.is_empty() && view.waiters.is_empty(), "{view:?}");
        ensure!(keeper.list(stage.prefix()).await?.is_empty(), "what is free is listed");
        keeper.lock(&name).ttl(LONG).acquire().await?.release().await?;
    }
    Ok(())
}

async fn waiters_are_shown_in_order(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("waited for");
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let mut waiters = Vec::new();
    for number in 1..=3 {
        let lock = two.lock(&name).ttl(LONG).note(&format!("number {number}"));
        waiters
            .push(tokio::spawn(async move { lock.acquire_within(PATIENT).await?.release().await }));
        queue_of(&one, &name, number).await?;
    }
    let view = one.show(&name).await?;
    let notes: Vec<_> = view.waiters.iter().map(|waiter| waiter.note.as_str()).collect();
    ensure!(notes == ["number 1", "number 2", "number 3"], "shown in the order {notes:?}");
    let place = view.place_of(&view.waiters[1].owner);
    ensure!(place == Some(2), "the second is in place {place:?}");
    held.release().await?;
    for waiter in waiters {
        waiter.await??;
    }
    Ok(())
}

async fn every_reader_is_shown(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("read");
    let lock = one.rw_lock(&name).read().ttl(LONG);
    let readers = [lock.acquire().await?, lock.acquire().await?, lock.acquire().await?];
    let view = two.show(&name).await?;
    let shown: Vec<_> = view.holders.iter().map(|holder| &holder.owner).collect();
    let held: Vec<_> = readers.iter().map(|reader| reader.owner()).collect();
    ensure!(shown == held, "{shown:?} are shown, where {held:?} hold it");
    Ok(())
}

async fn a_broken_hold_tells_its_holder_and_lets_the_next_in(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("broken");
    // Renewed often, for backends that learn of the break only by renewing.
    let guard = one.lock(&name).ttl(SHORT * 4).acquire().await?;
    let Some(token) = guard.token() else { return Err(Failure::broken("no token")) };
    let lock = two.lock(&name).ttl(LONG);
    let next = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    tokio::time::sleep(ms(50)).await;
    two.break_hold(&name, token, "it hung").await?;
    let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
    ensure!(signalled.is_ok(), "the holder was not told");
    // Why, and by whom.
    let reason = guard.lost_reason();
    let why =
        matches!(&reason, Some(LossReason::Broken { reason }) if reason.starts_with("it hung"));
    ensure!(why, "the holder was told {reason:?}");
    let by = reason.as_ref().and_then(LossReason::broken_by).unwrap_or_default();
    let this_process = format!(" pid {}", std::process::id());
    ensure!(by.ends_with(&this_process), "the holder was not told who broke it: {reason:?}");
    let next = next.await??;
    ensure!(next.token() > Some(token), "the next has no later token");
    let kind = guard.release().await.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing what was broken said {kind:?}");
    ensure!(next.is_held(), "the broken one took the next down with it");
    taken(&one, &name).await?;
    next.release().await?;
    Ok(())
}

async fn a_hold_broken_before_its_holder_knew_of_it_is_told(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    // Makes the keeper subscribe, for stores where it does so only while something is held.
    let other = one.lock(stage.name("other")).ttl(LONG).acquire().await?;
    let name = stage.name("broken at once");
    way.break_grants(1);
    // Its first renewal is too late to reveal the break.
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    let next = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
    ensure!(signalled.is_ok(), "the holder was not told while another holds it");
    ensure!(!guard.is_held(), "lost, and yet held");
    drop(guard);
    ensure!(next.is_held() && other.is_held(), "the broken one took others down with it");
    next.release().await?;
    other.release().await?;
    Ok(())
}

async fn a_hold_is_broken_by_its_token_only(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("kept");
    let earlier = one.lock(&name).ttl(LONG).acquire().await?;
    let stale = earlier.token();
    earlier.release().await?;
    let free = stage.name("free");
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    for (name, token) in [(&name, stale), (&name, FencingToken::new(1)), (&free, guard.token())] {
        let Some(token) = token else { return Err(Failure::broken("no token")) };
        let outcome = two.break_hold(name, token, "mistaken").await;
        let kind = outcome.err().map(|error| error.kind());
        ensure!(kind == Some(ErrorKind::NotHeld), "breaking what is not there gave {kind:?}");
    }
    ensure!(guard.is_held(), "a hold was broken by another's token");
    taken(&two, &name).await?;
    guard.release().await?;
    Ok(())
}

async fn breaking_an_owner_breaks_all_its_claims(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, me) = (stage.name("entered"), one.owner("me"));
    let outer = one.lock(&name).ttl(SHORT * 4).owner(&me).acquire().await?;
    let inner = two.lock(&name).ttl(SHORT * 4).owner(&me).acquire().await?;
    let Some(token) = outer.token() else { return Err(Failure::broken("no token")) };
    one.break_hold(&name, token, "both").await?;
    for guard in [&outer, &inner] {
        let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
        ensure!(signalled.is_ok(), "a claim of the broken owner was not told");
        let reason = guard.lost_reason();
        let broken =
            matches!(&reason, Some(LossReason::Broken { reason }) if reason.starts_with("both"));
        ensure!(broken, "a claim of the broken owner was told {reason:?}");
    }
    let next = two.lock(&name).ttl(LONG).try_acquire().await?;
    ensure!(next.is_some(), "it was broken, and yet the next is not let in");
    Ok(())
}

async fn breaking_one_reader_leaves_the_others(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("read");
    let lock = one.rw_lock(&name).read().ttl(SHORT * 4);
    let (first, second) = (lock.acquire().await?, lock.acquire().await?);
    let Some(token) = first.token() else { return Err(Failure::broken("no token")) };
    two.break_hold(&name, token, "one of them").await?;
    let what = "the broken reader is gone";
    let view = seen(&two, &name, what, |view| view.holders.len() == 1).await?;
    ensure!(view.holders[0].token == second.token(), "the wrong one was broken");
    let signalled = tokio::time::timeout(PATIENT, first.lost()).await;
    ensure!(signalled.is_ok(), "the broken one was not told");
    ensure!(second.is_held(), "the other was broken too");
    second.release().await?;
    Ok(())
}
