//! One owner with several claims.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, Stage, free, taken};
use crate::verdict::{Outcome, ensure};
use lockkeeper::{ErrorKind, Owner};
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("reentry":
        an_owner_enters_again_with_the_same_token,
        it_is_free_after_as_many_releases,
        owners_of_one_label_are_two,
        without_an_owner_nobody_enters_again,
    );
    if chosen.capability.reentrant {
        cases.extend(cases!("reentry":
            an_owner_enters_again_from_another_keeper,
            an_owner_elsewhere_keeps_it_when_the_first_lets_go,
        ));
    } else {
        cases.extend(cases!("reentry": an_owner_elsewhere_is_not_let_in));
    }
    if chosen.capability.shared {
        cases.extend(cases!("reentry": a_reader_that_would_write_is_refused));
        if chosen.capability.reentrant {
            cases.extend(cases!("reentry": a_reader_that_would_write_elsewhere_is_refused));
        }
    }
    if chosen.capability.permits {
        cases.extend(cases!("reentry":
            a_permit_entered_again_takes_no_second_place,
            a_permit_of_fewer_is_refused,
        ));
        if chosen.capability.reentrant {
            cases.extend(cases!("reentry": a_permit_of_fewer_elsewhere_is_refused));
        }
    }
    cases
}

async fn an_owner_enters_again_with_the_same_token(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let (name, me) = (stage.name("entered"), keeper.owner("me"));
    let lock = keeper.lock(&name).ttl(LONG).owner(&me);
    let (outer, inner) = (lock.acquire().await?, lock.try_acquire().await?);
    let Some(inner) = inner else { return not_let_in() };
    ensure!(outer.token() == inner.token(), "{:?}, then {:?}", outer.token(), inner.token());
    ensure!(outer.owner() == &me && inner.owner() == &me, "the owner changed");
    taken(&keeper, &name).await
}

fn not_let_in() -> Outcome {
    Err(crate::verdict::Failure::broken("the owner was not let in again"))
}

async fn it_is_free_after_as_many_releases(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, me) = (stage.name("counted"), one.owner("me"));
    let lock = one.lock(&name).ttl(LONG).owner(&me);
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(lock.acquire().await?);
    }
    while let Some(guard) = guards.pop() {
        taken(&two, &name).await?;
        ensure!(guard.is_held(), "lost with {} more to go", guards.len());
        guard.release().await?;
    }
    free(&two, &name).await
}

async fn owners_of_one_label_are_two(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("labelled");
    let (one, two) = (keeper.owner("same"), keeper.owner("same"));
    ensure!(one != two, "two owners are equal");
    let guard = keeper.lock(&name).ttl(LONG).owner(&one).acquire().await?;
    let other = keeper.lock(&name).owner(&two).try_acquire().await?;
    ensure!(other.is_none(), "another owner entered");
    guard.release().await?;
    Ok(())
}

async fn without_an_owner_nobody_enters_again(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("ownerless");
    let lock = keeper.lock(&name).ttl(LONG);
    let guard = lock.acquire().await?;
    ensure!(lock.try_acquire().await?.is_none(), "every guard is its own owner");
    guard.release().await?;
    Ok(())
}

async fn an_owner_enters_again_from_another_keeper(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, me) = (stage.name("resumed"), one.owner("me"));
    let outer = one.lock(&name).ttl(LONG).owner(&me).acquire().await?;
    let resumed = Owner::new(&me.to_string())?;
    let inner = two.lock(&name).ttl(LONG).owner(&resumed).try_acquire().await?;
    let Some(inner) = inner else { return not_let_in() };
    ensure!(outer.token() == inner.token(), "{:?}, then {:?}", outer.token(), inner.token());
    if let Ok(view) = one.show(&name).await {
        ensure!(view.holders.len() == 1, "one owner is shown as {}", view.holders.len());
        ensure!(view.holders[0].count == 2, "two claims are shown as {}", view.holders[0].count);
    }
    inner.release().await?;
    ensure!(outer.is_held(), "the first claim was lost with the second");
    taken(&two, &name).await?;
    outer.release().await?;
    free(&two, &name).await
}

async fn an_owner_elsewhere_keeps_it_when_the_first_lets_go(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, me) = (stage.name("passed"), one.owner("me"));
    let first = one.lock(&name).ttl(LONG).owner(&me).acquire().await?;
    let second = two.lock(&name).ttl(LONG).owner(&me).acquire().await?;
    let token = first.token();
    first.release().await?;
    ensure!(second.is_held() && second.token() == token, "the second claim changed");
    taken(&one, &name).await?;
    second.release().await?;
    free(&one, &name).await
}

async fn an_owner_elsewhere_is_not_let_in(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, me) = (stage.name("elsewhere"), one.owner("me"));
    let guard = one.lock(&name).ttl(LONG).owner(&me).acquire().await?;
    let other = two.lock(&name).owner(&me).try_acquire().await?;
    ensure!(other.is_none(), "it does not promise re-entry, and yet let the owner in");
    guard.release().await?;
    Ok(())
}

async fn a_reader_that_would_write_is_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    upgrade(&stage, &keeper, &keeper).await
}

async fn a_reader_that_would_write_elsewhere_is_refused(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    upgrade(&stage, &one, &two).await
}

async fn upgrade(stage: &Stage, one: &lockkeeper::Keeper, two: &lockkeeper::Keeper) -> Outcome {
    let (name, me) = (stage.name("upgraded"), one.owner("me"));
    let reader = one.rw_lock(&name).ttl(LONG).owner(&me).read().acquire().await?;
    let writing = two.rw_lock(&name).ttl(LONG).owner(&me).write().acquire().await;
    let kind = writing.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::WouldDeadlock), "a reader that would write got {kind:?}");
    ensure!(reader.is_held(), "the reader lost what it had");
    reader.release().await?;
    let writer = two.rw_lock(&name).ttl(LONG).owner(&me).write().acquire().await?;
    let reader = one.rw_lock(&name).ttl(LONG).owner(&me).read().try_acquire().await?;
    ensure!(reader.is_some(), "a writer may read what it writes");
    drop(reader);
    writer.release().await?;
    Ok(())
}

async fn a_permit_entered_again_takes_no_second_place(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let (name, me) = (stage.name("permitted"), keeper.owner("me"));
    let mine = keeper.semaphore(&name, 2).ttl(LONG).owner(&me);
    let (first, again) = (mine.acquire().await?, mine.acquire().await?);
    ensure!(first.token() == again.token(), "the token changed");
    let other = keeper.semaphore(&name, 2).ttl(LONG).try_acquire().await?;
    ensure!(other.is_some(), "one owner took two permits of two");
    ensure!(keeper.semaphore(&name, 2).try_acquire().await?.is_none(), "three of two");
    Ok(())
}

async fn a_permit_of_fewer_is_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    fewer(&stage, &keeper, &keeper).await
}

async fn a_permit_of_fewer_elsewhere_is_refused(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    fewer(&stage, &one, &two).await
}

/// The smallest number counts: an owner let in again as one of one would hold beside another.
async fn fewer(stage: &Stage, one: &lockkeeper::Keeper, two: &lockkeeper::Keeper) -> Outcome {
    let (name, me) = (stage.name("fewer"), one.owner("me"));
    let other = one.semaphore(&name, 3).ttl(LONG).acquire().await?;
    let mine = one.semaphore(&name, 3).ttl(LONG).owner(&me).acquire().await?;
    let fewer = two.semaphore(&name, 1).ttl(LONG).owner(&me).acquire().await;
    let kind = fewer.as_ref().err().map(lockkeeper::Error::kind);
    ensure!(kind == Some(ErrorKind::WouldDeadlock), "one of three that would be one got {kind:?}");
    ensure!(other.is_held() && mine.is_held(), "a claim was lost to one that was refused");
    let more = two.semaphore(&name, 5).ttl(LONG).owner(&me).try_acquire().await?;
    let Some(more) = more else { return not_let_in() };
    ensure!(more.token() == mine.token(), "{:?}, then {:?}", mine.token(), more.token());
    let third = two.semaphore(&name, 3).ttl(LONG).try_acquire().await?;
    ensure!(third.is_some(), "the claim that was refused is in the way");
    Ok(())
}
