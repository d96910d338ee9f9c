//! A claim that is asked for by an id of the caller's is one claim, however often and wherever it is
//! asked for.

use super::{Chosen, cases};
use crate::case::Case;
use crate::faulty::Renewals;
use crate::stage::{LONG, PATIENT, SHORT, Stage, free, ms, queues, taken};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::Name;
use lockkeeper::{ClaimId, ErrorKind, Keeper, Lock, Mode, Ticket};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.capability.by_id {
        return Vec::new();
    }
    let mut cases = cases!("by_id":
        asking_twice_gives_one_claim,
        asking_twice_at_one_keeper_shares_it,
        those_that_ask_at_once_get_one_claim,
        those_that_wait_under_one_id_are_let_in_together,
        one_that_stops_waiting_leaves_the_other_its_place,
        one_that_leaves_it_alone_does_not_end_it,
        an_answer_that_was_lost_is_got_by_asking_again,
        what_was_given_back_is_not_found,
        a_caller_that_leaves_does_not_take_it_from_the_other,
        what_ran_out_is_asked_for_again,
    );
    if chosen.capability.fencing && chosen.inspects {
        cases.extend(cases!("by_id": what_was_lost_leaves_the_next_alone));
    }
    if chosen.capability.shared {
        cases.extend(cases!("by_id": other_terms_under_the_same_id_are_refused));
    }
    if queues(&chosen.capability, chosen.inspects) {
        cases.extend(cases!("by_id": a_place_in_the_queue_is_kept, it_is_shown_for_whom_it_is));
        // In a session it is cut to what that is good for, and found for the longer of the two.
        if !chosen.capability.session {
            cases.extend(cases!("by_id": another_ttl_under_the_same_id_is_refused));
        }
    }
    cases
}

fn by_id(keeper: &Keeper, name: &str, id: ClaimId) -> Lock {
    keeper.lock(name).ttl(LONG).claim(id)
}

async fn asking_twice_gives_one_claim(stage: Arc<Stage>) -> Outcome {
    let (one, two, three) = (stage.keeper().await?, stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("twice"), ClaimId::random()?);
    let first = by_id(&one, &name, id).acquire().await?;
    let Some(second) = by_id(&two, &name, id).try_acquire().await? else {
        return Err(Failure::broken("its own claim kept it out"));
    };
    ensure!(first.token() == second.token(), "{:?}, then {:?}", first.token(), second.token());
    taken(&three, &name).await?;
    // Another id is another claim.
    let other = by_id(&three, &name, ClaimId::random()?).try_acquire().await?;
    ensure!(other.is_none(), "two hold it");
    // It is one: the first that gives it back ends it.
    second.release().await?;
    free(&three, &name).await?;
    drop(first);
    Ok(())
}

async fn asking_twice_at_one_keeper_shares_it(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("shared"), ClaimId::random()?);
    let first = by_id(&one, &name, id).acquire().await?;
    let second = by_id(&one, &name, id).acquire_within(PATIENT).await?;
    ensure!(first.token() == second.token(), "{:?}, then {:?}", first.token(), second.token());
    first.release().await?;
    ensure!(second.is_held(), "the other guard lost it");
    taken(&two, &name).await?;
    second.release().await?;
    free(&two, &name).await
}

async fn those_that_ask_at_once_get_one_claim(stage: Arc<Stage>) -> Outcome {
    let keepers = [stage.keeper().await?, stage.keeper().await?, stage.keeper().await?];
    for _ in 0..stage.rounds(10) {
        let (name, id) = (stage.name("at once"), ClaimId::random()?);
        let asked = keepers.iter().flat_map(|keeper| {
            // Two of each keeper.
            [by_id(keeper, &name, id), by_id(keeper, &name, id)]
        });
        let asked: Vec<_> = asked
            .map(|lock| tokio::spawn(async move { lock.acquire_within(PATIENT).await }))
            .collect();
        let mut guards = Vec::new();
        for asked in asked {
            guards.push(asked.await??);
        }
        let tokens: std::collections::HashSet<_> = guards.iter().map(|g| g.token()).collect();
        ensure!(tokens.len() == 1, "one claim has the tokens {tokens:?}");
        for guard in guards {
            // All but one of the keepers find that it was given back.
            let _ = guard.release().await;
        }
        free(&keepers[0], &name).await?;
    }
    Ok(())
}

async fn those_that_wait_under_one_id_are_let_in_together(stage: Arc<Stage>) -> Outcome {
    let (one, two, three) = (stage.keeper().await?, stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("waiting"), ClaimId::random()?);
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let wait = |keeper: &Keeper| {
        let lock = by_id(keeper, &name, id);
        tokio::spawn(async move { lock.acquire_within(PATIENT).await })
    };
    let (second, third) = (wait(&two), wait(&three));
    tokio::time::sleep(ms(300)).await;
    held.release().await?;
    let (second, third) = (second.await??, third.await??);
    ensure!(second.token() == third.token(), "{:?} and {:?}", second.token(), third.token());
    taken(&one, &name).await?;
    second.release().await?;
    free(&one, &name).await?;
    drop(third);
    Ok(())
}

async fn one_that_stops_waiting_leaves_the_other_its_place(stage: Arc<Stage>) -> Outcome {
    let (one, two, three) = (stage.keeper().await?, stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("patient"), ClaimId::random()?);
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let lock = by_id(&two, &name, id);
    let patient = tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    let impatient = by_id(&three, &name, id).acquire_within(ms(400)).await;
    let kind = impatient.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::TimedOut), "it ended with {kind:?}");
    held.release().await?;
    let guard = patient.await??;
    taken(&one, &name).await?;
    guard.release().await?;
    free(&one, &name).await
}

/// The keeper that asked first, or last, is not the one that holds: what becomes of it there must not end
/// the claim.
async fn one_that_leaves_it_alone_does_not_end_it(stage: Arc<Stage>) -> Outcome {
    let (one, two, three) = (stage.keeper().await?, stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("left alone"), ClaimId::random()?);
    let ttl = stage.ttl(SHORT);
    let ask = |keeper: &Keeper| by_id(keeper, &name, id).ttl(ttl);
    ask(&one).acquire().await?.detach();
    let found = ask(&two).acquire().await?;
    ask(&three).acquire().await?.detach();
    // Who waits asks about those that hold.
    let other = one.lock(&name).ttl(LONG).acquire_within(ttl * 5).await;
    ensure!(other.is_err(), "two hold it");
    ensure!(found.is_held(), "it was lost: {:?}", found.lost_reason());
    found.release().await?;
    free(&three, &name).await
}

async fn an_answer_that_was_lost_is_got_by_asking_again(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let other = stage.keeper().await?;
    let (name, id) = (stage.name("lost answer"), ClaimId::random()?);
    way.lose_answers(1);
    let lost = by_id(&keeper, &name, id).try_acquire().await;
    let kind = lost.as_ref().err().map(lockkeeper::Error::kind);
    ensure!(kind == Some(ErrorKind::Unavailable), "the answer was not lost: {lost:?}");
    // Not withdrawn: another may have found it by its id.
    tokio::time::sleep(ms(300)).await;
    taken(&other, &name).await?;
    let Some(found) = by_id(&other, &name, id).try_acquire().await? else {
        return Err(Failure::broken("its own claim kept it out"));
    };
    ensure!(found.is_held(), "it is not held");
    found.release().await?;
    free(&keeper, &name).await
}

async fn what_was_given_back_is_not_found(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("given back"), ClaimId::random()?);
    let first = by_id(&one, &name, id).acquire().await?;
    let token = first.token();
    first.release().await?;
    let held = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(by_id(&one, &name, id).try_acquire().await?.is_none(), "two hold it");
    held.release().await?;
    let again = by_id(&one, &name, id).acquire_within(PATIENT).await?;
    ensure!(token.is_none() || again.token() > token, "{token:?}, then {:?}", again.token());
    again.release().await?;
    Ok(())
}

/// A server whose client hung up leaves a request, while the client repeats it at another server.
async fn a_caller_that_leaves_does_not_take_it_from_the_other(stage: Arc<Stage>) -> Outcome {
    let (one, two, three) = (stage.keeper().await?, stage.keeper().await?, stage.keeper().await?);
    for round in 0..u64::try_from(stage.rounds(8)).unwrap_or(1) {
        let (name, id) = (stage.name("hung up"), ClaimId::random()?);
        let held = one.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        let (first, second) = (by_id(&two, &name, id), by_id(&three, &name, id));
        let leaves = tokio::spawn(async move { first.acquire_within(PATIENT).await });
        let stays = tokio::spawn(async move { second.acquire_within(PATIENT).await });
        tokio::time::sleep(ms(50)).await;
        let releasing = tokio::spawn(held.release());
        tokio::time::sleep(ms(round)).await;
        leaves.abort();
        releasing.await??;
        let guard = stays.await??;
        // What the one that left does in the background is over by then.
        tokio::time::sleep(ms(200)).await;
        taken(&one, &name).await?;
        ensure!(guard.is_held(), "it was lost: {:?}", guard.lost_reason());
        if let Ok(Ok(left)) = leaves.await {
            drop(left);
        } else {
            guard.release().await?;
        }
        free(&one, &name).await?;
    }
    Ok(())
}

async fn other_terms_under_the_same_id_are_refused(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("modes"), ClaimId::random()?);
    let held = one.rw_lock(&name).ttl(LONG).claim(id).write().acquire().await?;
    for keeper in [&one, &two] {
        let read = keeper.rw_lock(&name).ttl(LONG).claim(id).read().try_acquire().await;
        let kind = read.as_ref().err().map(lockkeeper::Error::kind);
        ensure!(kind == Some(ErrorKind::Config), "it was not refused: {read:?}");
    }
    ensure!(held.is_held(), "the holder lost it");
    held.release().await?;
    free(&two, &name).await
}

/// Asking again from elsewhere does not go to the end of the queue.
async fn a_place_in_the_queue_is_kept(stage: Arc<Stage>) -> Outcome {
    let (one, two, three) = (stage.keeper().await?, stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("place"), ClaimId::random()?);
    let held = one.lock(&name).ttl(LONG).acquire().await?;
    let queue = async |length: usize| {
        crate::stage::eventually("the queue has its length", async || {
            let view = one.show(&name).await?;
            Ok((view.waiters.len() == length).then_some(()))
        })
        .await
    };
    let wait = |lock: Lock| tokio::spawn(async move { lock.acquire_within(PATIENT).await });
    let first = wait(by_id(&two, &name, id));
    queue(1).await?;
    let behind = wait(one.lock(&name).ttl(LONG));
    queue(2).await?;
    let again = wait(by_id(&three, &name, id));
    tokio::time::sleep(ms(300)).await;
    let view = one.show(&name).await?;
    ensure!(view.waiters.len() == 2, "{} wait, and two claims do", view.waiters.len());
    held.release().await?;
    let (first, again) = (first.await??, again.await??);
    ensure!(!behind.is_finished(), "the one behind was let in beside it");
    first.release().await?;
    drop(again);
    behind.await??.release().await?;
    Ok(())
}

/// Each holder counts on the ttl that it asked for.
async fn another_ttl_under_the_same_id_is_refused(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("ttls"), ClaimId::random()?);
    let held = by_id(&one, &name, id).acquire().await?;
    for keeper in [&one, &two] {
        let shorter = by_id(keeper, &name, id).ttl(LONG / 2).try_acquire().await;
        let kind = shorter.as_ref().err().map(lockkeeper::Error::kind);
        ensure!(kind == Some(ErrorKind::Config), "it was not refused: {shorter:?}");
    }
    ensure!(held.is_held(), "the holder lost it");
    held.release().await?;
    free(&two, &name).await
}

async fn it_is_shown_for_whom_it_is(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("behalf");
    let guard = keeper.lock(&name).ttl(LONG).on_behalf_of("alice@laptop").acquire().await?;
    let view = keeper.show(&name).await?;
    let shown = view.holders.first().map(|holder| holder.identity.clone());
    ensure!(shown.as_deref() == Some("alice@laptop"), "it shows {shown:?}");
    guard.release().await?;
    for wrong in ["", "two\nlines", &"x".repeat(201)] {
        let refused = keeper.lock(&name).on_behalf_of(wrong).try_acquire().await;
        let kind = refused.err().map(|error| error.kind());
        ensure!(kind == Some(ErrorKind::Config), "{wrong:?} ended with {kind:?}");
    }
    Ok(())
}

/// The same id may be asked for again after its claim was lost. The guard of the lost one has nothing to give
/// back: what the store has under the id is another's.
async fn what_was_lost_leaves_the_next_alone(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let (name, id) = (stage.name("lost"), ClaimId::random()?);
    // Stores that do not tell are asked by a renewal, within a third of this.
    let ttl = Duration::from_secs(12);
    let lost = by_id(&one, &name, id).ttl(ttl).acquire().await?;
    let Some(token) = lost.token() else { return Err(Failure::broken("no token")) };
    two.break_hold(&name, token, "it hung").await?;
    let told = tokio::time::timeout(PATIENT, lost.lost()).await;
    ensure!(told.is_ok(), "the holder was not told");
    let next = by_id(&one, &name, id).ttl(ttl).acquire_within(PATIENT).await?;
    ensure!(next.token() > Some(token), "{token}, then {:?}", next.token());
    drop(lost);
    tokio::time::sleep(ms(300)).await;
    taken(&two, &name).await?;
    let ticket = Ticket::new(Name::new(&name)?, Mode::Exclusive, id, ttl);
    two.keep(&ticket.with_token(next.token())).await?;
    ensure!(next.is_held(), "it was lost: {:?}", next.lost_reason());
    next.release().await?;
    free(&two, &name).await
}

/// What ran out by the holder's own clock may be in the store still.
async fn what_ran_out_is_asked_for_again(stage: Arc<Stage>) -> Outcome {
    let (keeper, way) = stage.faulty().await?;
    let other = stage.keeper().await?;
    let ttl = stage.ttl(SHORT);
    for _ in 0..stage.rounds(6) {
        let (name, id) = (stage.name("ran out"), ClaimId::random()?);
        way.renewals(Renewals::AnswerLost);
        let first = by_id(&keeper, &name, id).ttl(ttl).acquire().await?;
        first.lost().await;
        way.renewals(Renewals::Pass);
        let next = by_id(&keeper, &name, id).ttl(ttl).acquire_within(PATIENT).await?;
        drop(first);
        tokio::time::sleep(ms(200)).await;
        taken(&other, &name).await?;
        ensure!(next.is_held(), "it was lost: {:?}", next.lost_reason());
        next.release().await?;
        free(&other, &name).await?;
    }
    Ok(())
}
