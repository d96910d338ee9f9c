//! A claim ends for its holder before another can get it.

use super::{Chosen, cases, cases_of_each_kind};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::kind::Kind;
use crate::stage::{LONG, PATIENT, SHORT, Stage, free, ms, taken};
use crate::verdict::{Failure, Outcome, ensure, unknown};
use lockkeeper::LossReason;
use lockkeeper::backend::Moment;
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = cases_of_each_kind!(chosen, "expiry":
        nobody_is_granted_what_another_may_still_believe_valid,
        a_claim_left_alone_ends_after_its_validity_and_not_before,
        claims_do_not_overlap_while_some_expire,
    );
    cases.extend(cases!("expiry":
        the_shortest_ttl_keeps_others_out_as_well,
        a_renewed_claim_outlives_its_ttl,
        a_late_release_leaves_the_next_holder_alone,
        an_expired_claim_is_free_without_anyone_waiting,
    ));
    cases
}

async fn nobody_is_granted_what_another_may_still_believe_valid(
    stage: Arc<Stage>,
    kind: Kind,
) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("expiring");
    way.renewals(Renewals::Hang);
    // Several rounds, so that the grant comes at different moments.
    for _ in 0..3 {
        let first = kind.of(&one, &name).ttl(stage.ttl(SHORT)).acquire().await?;
        let second = kind.of(&two, &name).ttl(LONG).acquire_within(PATIENT).await?;
        let left = first.remaining();
        ensure!(left.is_zero(), "granted to another while still valid for {left:?}");
        ensure!(!first.is_held() && first.lost().is_signalled(), "the loss was not noticed");
        second.release().await?;
    }
    Ok(())
}

async fn a_claim_left_alone_ends_after_its_validity_and_not_before(
    stage: Arc<Stage>,
    kind: Kind,
) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("detached");
    let first = kind.of(&one, &name).ttl(stage.ttl(SHORT)).acquire().await?;
    let valid_until = Moment::now() + first.remaining();
    first.detach();
    let second = kind.of(&two, &name).ttl(LONG).acquire_within(PATIENT).await?;
    let early = valid_until.remaining();
    ensure!(early.is_zero(), "granted {early:?} before the one before could know");
    second.release().await?;
    Ok(())
}

/// What one holder certainly believed: from the moment it knew of the grant to the end of validity
/// or the start of the release. Both ends are measured inwards, so measuring alone can never
/// produce an overlap.
type Believed = (Moment, Moment);

async fn claims_do_not_overlap_while_some_expire(stage: Arc<Stage>, kind: Kind) -> Outcome {
    let name = stage.name("history");
    let mut tasks = Vec::new();
    for number in 0..4_usize {
        let (keeper, way) = stage.faulty().await?;
        way.renewals(Renewals::Hang);
        let lock = kind.of(&keeper, &name).ttl(stage.ttl(ms(60)));
        let rounds = stage.rounds(6);
        tasks.push(tokio::spawn(async move {
            let (mut history, mut expired): (Vec<Believed>, usize) = (Vec::new(), 0);
            for round in 0..rounds {
                let guard = lock.acquire_within(PATIENT).await?;
                let start = Moment::now();
                let end = start + guard.remaining();
                if (number + round) % 2 == 0 {
                    let signal = tokio::time::timeout(PATIENT, guard.lost()).await;
                    ensure!(signal.is_ok(), "a loss was not signalled");
                    expired += 1;
                    history.push((start, end));
                } else {
                    tokio::time::sleep(ms(3)).await;
                    history.push((start, end.min(Moment::now())));
                    // Not awaited: on a slow machine a renewal may have begun, and hangs.
                    drop(guard);
                }
            }
            Ok::<_, Failure>((history, expired))
        }));
    }
    let (mut history, mut expired) = (Vec::new(), 0);
    for task in tasks {
        let (part, times) = task.await??;
        history.extend(part.into_iter().filter(|(start, end)| start < end));
        expired += times;
    }
    history.sort();
    for pair in history.windows(2) {
        let ((_, end), (start, _)) = (pair[0], pair[1]);
        ensure!(end <= start, "two believed to hold it for {:?}", end.since(start));
    }
    if history.len() < 6 || expired == 0 {
        unknown!("{} holds were seen and {expired} expiries", history.len());
    }
    Ok(())
}

async fn the_shortest_ttl_keeps_others_out_as_well(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("short");
    way.renewals(Renewals::Hang);
    let mut believed = 0;
    for _ in 0..stage.rounds(10) {
        let first = one.lock(&name).ttl(stage.ttl(ms(20))).acquire().await?;
        believed += usize::from(first.is_held());
        let second = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        let left = first.remaining();
        ensure!(left.is_zero(), "granted to another while still valid for {left:?}");
        second.release().await?;
    }
    if believed == 0 {
        unknown!("every claim was over before it was looked at");
    }
    Ok(())
}

async fn a_renewed_claim_outlives_its_ttl(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("renewed");
    let ttl = ms(2000);
    let start = Moment::now();
    let guard = one.lock(&name).ttl(ttl).acquire().await?;
    while Moment::now().since(start) < ttl * 2 {
        taken(&two, &name).await?;
        tokio::time::sleep(ms(100)).await;
    }
    ensure!(guard.is_held(), "a live holder lost it: {:?}", guard.lost_reason());
    ensure!(way.renewals_begun() > 1, "it was not renewed");
    guard.release().await?;
    Ok(())
}

async fn a_late_release_leaves_the_next_holder_alone(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let three = stage.keeper().await?;
    let name = stage.name("passed on");
    way.renewals(Renewals::Hang);
    let first = one.lock(&name).ttl(stage.ttl(SHORT)).acquire().await?;
    let second = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(first.lost_reason() == Some(LossReason::Expired), "{:?}", first.lost_reason());
    // The hanging renewal has the lease; when the renewal ends, the lease is released, late.
    way.heal();
    let outcome = first.release().await;
    let kind = outcome.err().map(|error| error.kind());
    ensure!(kind == Some(lockkeeper::ErrorKind::Lost), "releasing what was lost said {kind:?}");
    ensure!(one.close(PATIENT).await, "the late release did not end");
    ensure!(second.is_held(), "the next holder lost it: {:?}", second.lost_reason());
    taken(&three, &name).await?;
    second.release().await?;
    Ok(())
}

async fn an_expired_claim_is_free_without_anyone_waiting(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("forgotten");
    let ttl = stage.ttl(ms(200));
    one.lock(&name).ttl(ttl).acquire().await?.detach();
    // A store whose clock is coarse keeps it a little longer than the ttl.
    tokio::time::sleep(ttl * 5 / 2).await;
    let taken = two.lock(&name).ttl(LONG).try_acquire().await?;
    ensure!(taken.is_some(), "it expired and yet could not be taken");
    drop(taken);
    free(&one, &name).await
}
