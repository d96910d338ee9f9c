//! Several names at once: all or none.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::stage::{LONG, PATIENT, SHORT, Stage, free, ms, taken};
use crate::verdict::{Failure, Outcome, ensure};
use crate::witness::Witness;
use lockkeeper::ErrorKind;
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases!("multi":
        all_are_held_and_all_are_given_back,
        what_cannot_be_had_whole_is_given_back,
        opposite_orders_do_not_deadlock,
        losing_one_is_losing_all,
        losing_one_that_was_entered_again_is_losing_all,
        a_name_given_twice_counts_once,
        no_names_are_refused,
    );
    if chosen.inspects && chosen.capability.fencing {
        cases.extend(cases!("multi": losing_one_leaves_a_lock_entered_again_beside_it));
    }
    cases
}

async fn all_are_held_and_all_are_given_back(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let names = [stage.name("c"), stage.name("a"), stage.name("b")];
    let guard = one.multi(&names).ttl(LONG).acquire().await?;
    ensure!(guard.is_held() && guard.guards().len() == 3, "not all are held");
    ensure!(guard.run(async {}).await.is_ok(), "the work did not run");
    let order: Vec<_> = guard.names().map(|name| name.as_str().to_owned()).collect();
    ensure!(order.is_sorted(), "they were taken in the order {order:?}");
    for name in &names {
        taken(&two, name).await?;
        ensure!(
            guard.token(name)
                == guard.guards()[order.iter().position(|n| n == name).unwrap_or(0)].token(),
            "the token of {name:?} is another's"
        );
    }
    guard.release().await?;
    for name in &names {
        let next = two.lock(name).ttl(LONG).try_acquire().await?;
        ensure!(next.is_some(), "{name:?} was not given back");
    }
    Ok(())
}

async fn what_cannot_be_had_whole_is_given_back(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let names = [stage.name("a"), stage.name("b"), stage.name("c")];
    let held = two.lock(&names[1]).ttl(LONG).acquire().await?;
    let multi = one.multi(&names).ttl(LONG);
    ensure!(multi.try_acquire().await?.is_none(), "all were granted although one is held");
    free(&two, &names[0]).await?;
    free(&two, &names[2]).await?;
    // Long enough for the store to say which one is not free, also on a busy machine.
    let error = multi.acquire_within(ms(1500)).await.err();
    let kind = error.as_ref().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::TimedOut), "the limit gave {kind:?}");
    let named = error.is_some_and(|error| error.to_string().contains(&names[1]));
    ensure!(named, "the one that was not free is not named");
    free(&two, &names[0]).await?;
    held.release().await?;
    multi.acquire_within(PATIENT).await?.release().await?;
    Ok(())
}

async fn opposite_orders_do_not_deadlock(stage: Arc<Stage>) -> Outcome {
    let names = [stage.name("left"), stage.name("right")];
    let witness = Arc::new(Witness::default());
    // All are connected before the first contends, or the first may be through by then.
    let mut keepers = Vec::new();
    for _ in 0..4 {
        keepers.push(stage.keeper().await?);
    }
    let mut tasks = Vec::new();
    for (number, keeper) in keepers.iter().enumerate() {
        let mut names = names.clone();
        if number % 2 == 1 {
            names.reverse();
        }
        let (multi, witness) = (keeper.multi(&names).ttl(LONG), witness.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..8 {
                let guard = match multi.try_acquire().await? {
                    Some(guard) => guard,
                    None => {
                        witness.found_busy();
                        multi.acquire().await?
                    }
                };
                witness.visit().await;
                guard.release().await?;
            }
            Ok::<(), lockkeeper::Error>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    witness.judge(1, 32)
}

async fn losing_one_is_losing_all(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let names = [stage.name("a"), stage.name("b")];
    way.renewals(Renewals::Hang);
    let guard = keeper.multi(&names).ttl(stage.ttl(SHORT)).acquire().await?;
    let work = guard.run(std::future::pending::<()>());
    let outcome = tokio::time::timeout(PATIENT, work).await;
    let kind = outcome.ok().and_then(Result::err).map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Lost), "the work ended with {kind:?}");
    ensure!(guard.lost().is_signalled() && !guard.is_held(), "one is lost, and yet all are held");
    ensure!(guard.lost_reason().is_some(), "there is no reason");
    Ok(())
}

async fn losing_one_that_was_entered_again_is_losing_all(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let names = [stage.name("a"), stage.name("b")];
    let me = keeper.owner("me");
    way.renewals(Renewals::Hang);
    let single = keeper.lock(&names[0]).ttl(stage.ttl(SHORT * 2)).owner(&me).acquire().await?;
    let both = keeper.multi(&names).ttl(LONG).owner(&me).acquire().await?;
    single.lost().await;
    ensure!(!both.is_held(), "one is lost, and yet all are held");
    let signalled = tokio::time::timeout(SHORT, both.lost()).await;
    ensure!(signalled.is_ok(), "one that was entered again is lost, and there is no signal");
    Ok(())
}

async fn losing_one_leaves_a_lock_entered_again_beside_it(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let names = [stage.name("a"), stage.name("b")];
    let me = one.owner("me");
    let both = one.multi(&names).ttl(SHORT * 4).owner(&me).acquire().await?;
    let single = one.lock(&names[0]).owner(&me).acquire().await?;
    let Some(token) = both.token(&names[1]) else { return Err(Failure::broken("no token")) };
    two.break_hold(&names[1], token, "the other one").await?;
    let signalled = tokio::time::timeout(PATIENT, both.lost()).await;
    ensure!(signalled.is_ok(), "one is lost, and there is no signal");
    ensure!(single.is_held(), "the lock that was not broken is lost: {:?}", single.lost_reason());
    ensure!(!single.lost().is_signalled(), "it is held, and yet its loss is signalled");
    Ok(())
}

async fn a_name_given_twice_counts_once(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("twice");
    let multi = keeper.multi([&name, &name]).ttl(LONG);
    let guard = multi.acquire_within(PATIENT).await?;
    ensure!(guard.guards().len() == 1, "it was taken twice");
    guard.release().await?;
    free(&keeper, &name).await
}

async fn no_names_are_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let none: [&str; 0] = [];
    let kind = keeper.multi(none).acquire().await.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::InvalidName), "no names gave {kind:?}");
    Ok(())
}
