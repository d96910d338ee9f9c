//! A caller that cancels, at any point, leaves nothing behind.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage, free, ms, seen};
use crate::verdict::{Outcome, ensure, unknown};
use lockkeeper::{Keeper, Lock};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("cancel":
        a_lock_asked_for_and_forsaken,
        a_lock_waited_for_and_forsaken,
        a_lock_forsaken_while_it_is_handed_over,
        a_waiter_that_vanishes_about_when_it_is_granted,
        several_locks_asked_for_and_forsaken,
        several_locks_waited_for_and_forsaken,
        a_release_goes_on_without_its_caller,
    );
    if chosen.capability.shared {
        cases.extend(cases!("cancel":
            a_read_side_asked_for_and_forsaken,
            a_read_side_waited_for_and_forsaken,
            a_write_side_waited_for_and_forsaken_lets_readers_in,
        ));
    }
    if chosen.capability.permits {
        cases.extend(cases!("cancel":
            a_permit_asked_for_and_forsaken,
            a_permit_waited_for_and_forsaken,
        ));
    }
    if chosen.capability.min_hold {
        cases.extend(cases!("cancel":
            who_was_not_there_for_the_grant_serves_no_min_hold,
            who_waited_in_vain_serves_no_min_hold,
            one_of_several_locks_serves_no_min_hold_for_the_others,
        ));
    }
    cases
}

/// More polls than any acquire takes; a timeout ends waits that never end.
const MOST_POLLS: usize = 40;

/// Polls a future at most `left` times, then gives it up.
struct Polled<F> {
    future: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for Polled<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// How a future ended that was polled a limited number of times.
enum End<T> {
    /// It completed.
    Done(T),
    /// It was dropped after the last poll.
    Dropped,
    /// It was dropped because nothing woke it any more.
    Asleep,
}

async fn polled<F: Future>(polls: usize, future: F) -> End<F::Output> {
    let polled = Polled { future: Box::pin(future), left: polls };
    match tokio::time::timeout(ms(120), polled).await {
        Ok(Some(output)) => End::Done(output),
        Ok(None) => End::Dropped,
        Err(_) => End::Asleep,
    }
}

/// Drops an acquire of a free name after 1, 2, 3, … polls until one is granted.
async fn asked_for(stage: &Stage, of: fn(&Keeper, &str) -> Lock) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("free");
    let lock = of(&one, &name).ttl(LONG);
    for polls in 1..=MOST_POLLS {
        match polled(polls, lock.acquire()).await {
            End::Done(guard) => {
                let mut guard = guard?;
                guard.cancel_min_hold();
                return Ok(guard.release().await?);
            }
            End::Dropped | End::Asleep => free(&two, &name).await?,
        }
    }
    unknown!("no acquire was granted within {MOST_POLLS} polls")
}

/// Drops an acquire of a held name after 1, 2, 3, … polls until nothing wakes it any more.
async fn waited_for(stage: &Stage, of: fn(&Keeper, &str) -> Lock) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("held");
    let held = two.lock(&name).ttl(LONG).acquire().await?;
    let lock = of(&one, &name).ttl(LONG);
    let mut asleep = false;
    for polls in 1..=MOST_POLLS {
        match polled(polls, lock.acquire()).await {
            End::Done(_) => ensure!(false, "it was granted although it is held"),
            End::Dropped => {}
            End::Asleep => asleep = true,
        }
        ensure!(held.is_held(), "the holder lost it to one who went away");
        if asleep {
            break;
        }
    }
    ensure!(one.close(PATIENT).await, "those who went away are not through");
    if two.show(&name).await.is_ok() {
        seen(&two, &name, "those who went away left the queue", |view| view.waiters.is_empty())
            .await?;
    }
    held.release().await?;
    free(&two, &name).await
}

async fn a_lock_asked_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    asked_for(&stage, |keeper, name| keeper.lock(name)).await
}

async fn a_read_side_asked_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    asked_for(&stage, |keeper, name| keeper.rw_lock(name).read()).await
}

async fn a_permit_asked_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    asked_for(&stage, |keeper, name| keeper.semaphore(name, 1)).await
}

async fn a_lock_waited_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    waited_for(&stage, |keeper, name| keeper.lock(name)).await
}

async fn a_read_side_waited_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    waited_for(&stage, |keeper, name| keeper.rw_lock(name).read()).await
}

async fn a_permit_waited_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    waited_for(&stage, |keeper, name| keeper.semaphore(name, 1)).await
}

/// A `min_hold` that no case waits out.
const HOUR: Duration = Duration::from_secs(3600);

async fn who_was_not_there_for_the_grant_serves_no_min_hold(stage: Arc<Stage>) -> Outcome {
    asked_for(&stage, |keeper, name| keeper.lock(name).min_hold(HOUR)).await
}

async fn who_waited_in_vain_serves_no_min_hold(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("vanished");
    for round in 0..16_u64 {
        let held = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        let lock = one.lock(&name).ttl(LONG).min_hold(HOUR);
        let waiter = tokio::spawn(async move {
            let mut guard = lock.acquire().await?;
            guard.cancel_min_hold();
            guard.release().await
        });
        tokio::time::sleep(ms(15)).await;
        let release = tokio::spawn(held.release());
        tokio::time::sleep(Duration::from_micros(round * 60)).await;
        waiter.abort();
        release.await??;
    }
    free(&two, &name).await
}

async fn one_of_several_locks_serves_no_min_hold_for_the_others(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let names = [stage.name("a"), stage.name("b")];
    let held = two.lock(&names[1]).ttl(LONG).acquire().await?;
    let both = one.multi(&names).ttl(LONG).min_hold(HOUR);
    ensure!(both.try_acquire().await?.is_none(), "granted although one is held");
    free(&two, &names[0]).await?;
    ensure!(both.acquire_within(ms(100)).await.is_err(), "granted although one is held");
    free(&two, &names[0]).await?;
    let forsaken = tokio::time::timeout(ms(100), both.acquire()).await;
    ensure!(forsaken.is_err(), "granted although one is held");
    free(&two, &names[0]).await?;
    held.release().await?;
    free(&two, &names[1]).await
}

async fn a_lock_forsaken_while_it_is_handed_over(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("handed over");
    let lock = one.lock(&name).ttl(LONG);
    for polls in 1..=10 {
        let held = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        let waiting = polled(polls, async {
            let mut waiting = Box::pin(lock.acquire());
            // One poll, to be in the queue before the release, if one poll is enough for that.
            futures_util::future::poll_immediate(&mut waiting).await;
            let release = tokio::spawn(held.release());
            let guard = waiting.await;
            drop(release);
            guard
        });
        drop(waiting.await);
    }
    free(&two, &name).await
}

async fn a_waiter_that_vanishes_about_when_it_is_granted(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("vanished");
    for round in 0..16_u64 {
        let held = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        let lock = one.lock(&name).ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(ms(15)).await;
        let release = tokio::spawn(held.release());
        tokio::time::sleep(Duration::from_micros(round * 120)).await;
        waiter.abort();
        release.await??;
    }
    free(&two, &name).await
}

async fn several_locks_asked_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let names = [stage.name("a"), stage.name("b"), stage.name("c")];
    let multi = one.multi(&names).ttl(LONG);
    for polls in 1..=MOST_POLLS {
        match polled(polls, multi.acquire()).await {
            End::Done(guard) => return Ok(guard?.release().await?),
            End::Dropped | End::Asleep => {
                for name in &names {
                    free(&two, name).await?;
                }
            }
        }
    }
    unknown!("the locks were not granted within {MOST_POLLS} polls")
}

async fn several_locks_waited_for_and_forsaken(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let names = [stage.name("a"), stage.name("b"), stage.name("c")];
    let held = two.lock(&names[2]).ttl(LONG).acquire().await?;
    let multi = one.multi(&names).ttl(LONG);
    for polls in 1..=MOST_POLLS {
        let end = polled(polls, multi.acquire()).await;
        ensure!(!matches!(end, End::Done(_)), "granted although one is held");
        free(&two, &names[0]).await?;
        free(&two, &names[1]).await?;
        if matches!(end, End::Asleep) {
            break;
        }
    }
    held.release().await?;
    free(&two, &names[2]).await
}

async fn a_write_side_waited_for_and_forsaken_lets_readers_in(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("read");
    let reader = two.rw_lock(&name).read().ttl(LONG).acquire().await?;
    let end = polled(usize::MAX, one.rw_lock(&name).write().acquire()).await;
    ensure!(matches!(end, End::Asleep), "a writer did not wait for the reader");
    let another = two.rw_lock(&name).read().ttl(LONG);
    let another = another.acquire_within(PATIENT).await?;
    ensure!(reader.is_held() && another.is_held(), "the readers do not share");
    Ok(())
}

async fn a_release_goes_on_without_its_caller(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("released");
    for polls in 1..=MOST_POLLS {
        let guard = one.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        let end = polled(polls, guard.release()).await;
        free(&two, &name).await?;
        if let End::Done(outcome) = end {
            return Ok(outcome?);
        }
    }
    unknown!("no release was done within {MOST_POLLS} polls")
}
