//! A loss is noticed once, in time, and stays.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::stage::{LONG, PATIENT, SHORT, Stage, eventually, free, ms, taken};
use crate::verdict::{Outcome, ensure, unknown};
use lockkeeper::event::EventKind;
use lockkeeper::{ErrorKind, LossReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) fn cases(_: &Chosen) -> Vec<Case> {
    cases!("loss":
        it_is_signalled_while_a_renewal_hangs,
        it_is_signalled_once,
        it_stops_the_work,
        a_renewal_that_arrives_late_does_not_bring_it_back,
        a_renewal_that_is_answered_late_does_not_bring_it_back,
        failed_renewals_neither_extend_nor_end_it,
        a_claim_kept_by_an_unanswered_renewal_is_given_back,
        a_release_of_what_the_store_no_longer_has_says_so,
        a_release_that_is_made_again_says_nothing_of_it,
    )
}

async fn it_is_signalled_while_a_renewal_hangs(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let name = stage.name("hanging");
    way.renewals(Renewals::Hang);
    let guard = keeper.lock(&name).ttl(stage.ttl(SHORT)).acquire().await?;
    // Waits for the signal only: asking the guard would make it check its clock.
    let signalled = tokio::time::timeout(PATIENT, guard.lost()).await;
    ensure!(signalled.is_ok(), "no signal while the renewal hangs");
    ensure!(way.renewals_begun() > 0, "it was lost before it was to be renewed");
    ensure!(!guard.is_held() && guard.remaining().is_zero(), "lost, and yet held");
    ensure!(guard.lost_reason() == Some(LossReason::Expired), "{:?}", guard.lost_reason());
    Ok(())
}

async fn it_is_signalled_once(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let name = stage.name("once");
    let mut events = keeper.events();
    way.renewals(Renewals::Hang);
    let guard = keeper.lock(&name).ttl(stage.ttl(SHORT)).acquire().await?;
    guard.lost().await;
    way.heal();
    for _ in 0..20 {
        ensure!(!guard.is_held(), "what was lost came back");
        tokio::time::sleep(ms(5)).await;
    }
    ensure!(guard.lost_reason() == Some(LossReason::Expired), "the reason changed");
    drop(guard);
    ensure!(keeper.close(PATIENT).await, "the keeper did not come to rest");
    let mut losses = 0;
    while let Ok(Some(event)) = tokio::time::timeout(ms(50), events.next()).await {
        losses += usize::from(matches!(event.kind, EventKind::Lost(_)));
    }
    ensure!(losses == 1, "{losses} losses were told of, where one happened");
    Ok(())
}

async fn it_stops_the_work(stage: Arc<Stage>) -> Outcome {
    struct Stopped(Arc<AtomicBool>);
    impl Drop for Stopped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (keeper, way) = stage.faulty().await?;
    let name = stage.name("at work");
    way.renewals(Renewals::Hang);
    let guard = keeper.lock(&name).ttl(stage.ttl(SHORT)).acquire().await?;
    let stopped = Arc::new(AtomicBool::new(false));
    let dropped = Stopped(stopped.clone());
    let work = guard.run(async move {
        let _dropped = dropped;
        std::future::pending::<()>().await;
    });
    let outcome = tokio::time::timeout(PATIENT, work).await;
    let Ok(outcome) = outcome else { unknown!("the work went on for {PATIENT:?}") };
    let kind = outcome.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Lost), "the work ended with {kind:?}");
    ensure!(stopped.load(Ordering::SeqCst), "the work was not dropped");
    let after = guard.run(async { 1 }).await.err().map(|error| error.kind());
    ensure!(after == Some(ErrorKind::Lost), "work began after the loss");
    Ok(())
}

async fn a_renewal_that_arrives_late_does_not_bring_it_back(stage: Arc<Stage>) -> Outcome {
    late(&stage, Renewals::SentLate).await
}

async fn a_renewal_that_is_answered_late_does_not_bring_it_back(stage: Arc<Stage>) -> Outcome {
    late(&stage, Renewals::AnsweredLate).await
}

async fn late(stage: &Stage, renewals: Renewals) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let three = stage.keeper().await?;
    let name = stage.name("late");
    way.renewals(renewals);
    let first = one.lock(&name).ttl(stage.ttl(SHORT)).acquire().await?;
    let second = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(!first.is_held(), "granted while another believes it valid");
    ensure!(way.renewals_begun() > 0, "no renewal was under way when it expired");
    way.renewals(Renewals::Pass);
    // Once the keeper is closed, the renewal was answered and the lease released.
    ensure!(one.close(PATIENT).await, "the late renewal did not end");
    ensure!(!first.is_held(), "a late renewal brought it back");
    ensure!(second.is_held(), "a late renewal took it from the next: {:?}", second.lost_reason());
    taken(&three, &name).await?;
    second.release().await?;
    Ok(())
}

async fn failed_renewals_neither_extend_nor_end_it(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let name = stage.name("doubtful");
    let mut events = keeper.events();
    way.renewals(Renewals::Fail);
    let ttl = ms(3000);
    let guard = keeper.lock(&name).ttl(ttl).acquire().await?;
    eventually("two renewals fail", async || Ok((way.renewals_begun() >= 2).then_some(()))).await?;
    ensure!(guard.remaining() <= ttl * 2 / 3, "a failed renewal extended it");
    ensure!(guard.is_held(), "a failed renewal ended it");
    way.heal();
    loop {
        let Ok(Some(event)) = tokio::time::timeout(PATIENT, events.next()).await else {
            unknown!("no renewal came through");
        };
        match event.kind {
            EventKind::Renewed => break,
            EventKind::Lost(_) => unknown!("it expired before the store answered again"),
            _ => {}
        }
    }
    ensure!(guard.is_held(), "it was lost although it was renewed");
    guard.release().await?;
    Ok(())
}

async fn a_claim_kept_by_an_unanswered_renewal_is_given_back(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("kept");
    way.renewals(Renewals::AnswerLost);
    let guard = one.lock(&name).ttl(stage.ttl(ms(800))).acquire().await?;
    guard.lost().await;
    let second = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(!guard.is_held(), "granted while another believes it valid");
    second.release().await?;
    Ok(())
}

async fn a_release_of_what_the_store_no_longer_has_says_so(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("gone");
    let mut events = one.events();
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    way.remove_granted().await?;
    free(&two, &name).await?;
    let kind = guard.release().await.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Lost), "the release said {kind:?}");
    ensure!(one.close(PATIENT).await, "the keeper did not come to rest");
    let mut told = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(ms(50), events.next()).await {
        told.push(event.kind);
    }
    let losses = told.iter().filter(|what| matches!(what, EventKind::Lost(_))).count();
    ensure!(losses == 1 && !told.contains(&EventKind::Released), "told was {told:?}");
    Ok(())
}

async fn a_release_that_is_made_again_says_nothing_of_it(stage: Arc<Stage>) -> Outcome {
    let ((one, way), two) = (stage.faulty().await?, stage.keeper().await?);
    let name = stage.name("given back");
    let mut events = one.events();
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    way.hold_back_retries();
    ensure!(guard.release().await.is_err(), "the answer to the release was not lost");
    free(&two, &name).await?;
    way.let_retries_go();
    ensure!(one.close(PATIENT).await, "it insisted on and on");
    ensure!(way.times_given_back() > 1, "the release was not made again");
    while let Ok(Some(event)) = tokio::time::timeout(ms(50), events.next()).await {
        ensure!(!matches!(event.kind, EventKind::Lost(_)), "what was given back was told as lost");
    }
    Ok(())
}
