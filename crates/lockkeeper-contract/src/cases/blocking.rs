//! The same for threads without a runtime.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage, free, ms};
use crate::verdict::{Failure, Outcome, ensure};
use crate::witness::Witness;
use lockkeeper::ErrorKind;
use lockkeeper::backend::Moment;
use lockkeeper::blocking::Keeper;
use std::sync::Arc;
use tokio::runtime::Handle;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("blocking":
        it_needs_no_runtime,
        a_thread_enters_again,
        threads_exclude_each_other,
        a_limit_is_never_cut_short,
        a_dropped_guard_is_released_before_the_last_handle_is_gone,
    );
    if chosen.capability.permits {
        cases.extend(cases!("blocking": one_thread_takes_several_permits));
    }
    cases
}

/// Runs `act` on a thread without a runtime.
async fn on_a_thread<T: Send + 'static>(
    act: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let thread = std::thread::spawn(move || {
        ensure!(Handle::try_current().is_err(), "there is a runtime where none should be");
        act()
    });
    let joined = tokio::task::spawn_blocking(move || thread.join()).await?;
    joined.unwrap_or_else(|_| Err(Failure::broken("the thread panicked")))
}

async fn it_needs_no_runtime(stage: Arc<Stage>) -> Outcome {
    let (backend, name) = (stage.backend().await?, stage.name("plain"));
    let ttl = stage.ttl(ms(1500));
    on_a_thread(move || {
        let keeper = Keeper::new(backend)?;
        let guard = keeper.lock(&name).ttl(ttl).acquire()?;
        // The keeper's own thread renews it while this one sleeps.
        std::thread::sleep(ttl + ms(1000));
        guard.check()?;
        guard.release()?;
        ensure!(keeper.lock(&name).ttl(LONG).try_acquire()?.is_some(), "it was not given back");
        Ok(())
    })
    .await
}

async fn a_thread_enters_again(stage: Arc<Stage>) -> Outcome {
    let (backend, name) = (stage.backend().await?, stage.name("entered"));
    on_a_thread(move || {
        let keeper = Keeper::new(backend)?;
        let outer = keeper.lock(&name).ttl(LONG).acquire()?;
        let inner = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT)?;
        ensure!(outer.token() == inner.token(), "the token changed");
        outer.release()?;
        let (elsewhere, other) = (keeper.clone(), name.clone());
        let tried = std::thread::spawn(move || {
            elsewhere.lock(&other).try_acquire().map(|guard| guard.is_some())
        });
        let tried = tried.join().map_err(|_| Failure::broken("the thread panicked"))??;
        ensure!(!tried, "another thread entered");
        inner.release()?;
        Ok(())
    })
    .await
}

async fn threads_exclude_each_other(stage: Arc<Stage>) -> Outcome {
    let (backend, name) = (stage.backend().await?, stage.name("contended"));
    on_a_thread(move || {
        let keeper = Keeper::new(backend)?;
        let witness = Arc::new(Witness::default());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (keeper, witness, name) = (keeper.clone(), witness.clone(), name.clone());
                std::thread::spawn(move || {
                    let lock = keeper.lock(&name).ttl(LONG);
                    for _ in 0..8 {
                        let guard = match lock.try_acquire()? {
                            Some(guard) => guard,
                            None => {
                                witness.found_busy();
                                lock.acquire()?
                            }
                        };
                        witness.visit_blocking();
                        guard.release()?;
                    }
                    Ok::<(), lockkeeper::Error>(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| Failure::broken("a thread panicked"))??;
        }
        witness.judge(1, 32)
    })
    .await
}

async fn a_limit_is_never_cut_short(stage: Arc<Stage>) -> Outcome {
    let (backend, name) = (stage.backend().await?, stage.name("held"));
    let keeper = stage.keeper().await?;
    let guard = keeper.lock(&name).ttl(LONG).acquire().await?;
    on_a_thread(move || {
        let keeper = Keeper::new(backend)?;
        let before = Moment::now();
        let kind = keeper.lock(&name).acquire_within(ms(120)).err().map(|error| error.kind());
        ensure!(kind == Some(ErrorKind::TimedOut), "a held lock gave {kind:?}");
        ensure!(Moment::now().since(before) >= ms(120), "it gave up early");
        Ok(())
    })
    .await?;
    guard.release().await?;
    Ok(())
}

async fn a_dropped_guard_is_released_before_the_last_handle_is_gone(stage: Arc<Stage>) -> Outcome {
    let (backend, name) = (stage.backend().await?, stage.name("farewell"));
    let taken = name.clone();
    on_a_thread(move || {
        let guard = Keeper::new(backend)?.lock(&taken).ttl(LONG).acquire()?;
        drop(guard);
        Ok(())
    })
    .await?;
    free(&stage.keeper().await?, &name).await
}

async fn one_thread_takes_several_permits(stage: Arc<Stage>) -> Outcome {
    let (backend, name) = (stage.backend().await?, stage.name("gate"));
    on_a_thread(move || {
        let keeper = Keeper::new(backend)?;
        let gate = keeper.semaphore(&name, 2).ttl(LONG);
        let (one, two) = (gate.acquire()?, gate.acquire_within(PATIENT)?);
        ensure!(gate.try_acquire()?.is_none(), "a third of two");
        one.release()?;
        two.release()?;
        Ok(())
    })
    .await
}
