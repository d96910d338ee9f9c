//! Tickets: a claim that is handed out is kept, taken over and given back by any process that has its ticket.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage, free, ms, taken};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::{Capability, Moment, Name};
use lockkeeper::{ClaimId, ErrorKind, Mode, Ticket};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let Capability { portable, fencing, inspects, min_hold, .. } = chosen.capability;
    if !portable {
        return Vec::new();
    }
    let mut cases = cases!("tickets":
        what_is_handed_out_is_kept_and_given_back_elsewhere,
        what_is_handed_out_ends_at_its_ttl,
        what_is_taken_over_is_renewed_there,
        a_ticket_of_what_is_not_there_is_refused,
        a_stale_ticket_does_nothing_to_the_next_holder,
        a_caller_that_leaves_while_handing_out_keeps_nothing,
        several_are_handed_out_together,
    );
    if fencing && inspects {
        cases.extend(cases!("tickets": what_is_taken_over_tells_of_a_break));
    }
    if min_hold {
        cases.extend(cases!("tickets": what_has_bounds_is_not_handed_out));
    }
    cases
}

async fn what_is_handed_out_is_kept_and_given_back_elsewhere(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let ttl = stage.ttl(ms(1500));
    let name = stage.name("handed out");
    let guard = one.lock(&name).ttl(ttl).acquire().await?;
    let token = guard.token();
    let text = guard.hand_out().await?.to_string();
    let ticket: Ticket = text.parse()?;
    ensure!(ticket.token == token, "the ticket has the token {:?}, not {token:?}", ticket.token);
    // Longer than the ttl: only the ticket can have kept it.
    let until = tokio::time::Instant::now() + ttl * 3;
    while tokio::time::Instant::now() < until {
        let left = two.keep(&ticket).await?;
        ensure!(left < ttl, "valid for {left:?}, with a ttl of {ttl:?}");
        taken(&one, &name).await?;
        tokio::time::sleep(ttl / 6).await;
    }
    // For as long as the one who keeps it says.
    two.keep(&ticket.clone().with_ttl(LONG)).await?;
    tokio::time::sleep(ttl + ms(200)).await;
    taken(&one, &name).await?;
    two.give_back(&ticket).await?;
    free(&one, &name).await
}

/// The keeper that handed it out is there all the time, and must not renew it.
async fn what_is_handed_out_ends_at_its_ttl(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let ttl = stage.ttl(ms(1500));
    let name = stage.name("left alone");
    let guard = one.lock(&name).ttl(ttl).acquire().await?;
    tokio::time::sleep(ttl / 2).await;
    let before = Moment::now();
    let ticket = guard.hand_out().await?;
    // It has its whole ttl from here, whatever was left of it.
    let next = two.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    let waited = Moment::now().since(before);
    ensure!(waited >= ttl, "given to the next after {waited:?}, with a ttl of {ttl:?}");
    let kept = one.keep(&ticket).await;
    ensure!(kept.is_err_and(|e| e.kind() == ErrorKind::Lost), "what is over was kept");
    next.release().await?;
    Ok(())
}

async fn what_is_taken_over_is_renewed_there(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let ttl = stage.ttl(ms(1500));
    let name = stage.name("taken over");
    let guard = one.lock(&name).ttl(ttl).acquire().await?;
    let token = guard.token();
    let ticket = guard.hand_out().await?;
    let guard = two.take_over(&ticket).await?;
    ensure!(guard.token() == token, "the token was {token:?}, and is {:?}", guard.token());
    ensure!(guard.mode() == Mode::Exclusive && guard.is_held(), "not as it was");
    tokio::time::sleep(ttl * 3).await;
    ensure!(guard.is_held(), "it was not renewed: {:?}", guard.lost_reason());
    taken(&one, &name).await?;
    // Once more at the same keeper: the same hold.
    let again = two.take_over(&ticket).await?;
    drop(again);
    tokio::time::sleep(ms(100)).await;
    taken(&one, &name).await?;
    guard.release().await?;
    free(&one, &name).await
}

async fn what_is_taken_over_tells_of_a_break(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("broken");
    // Stores that do not tell are asked by a renewal, within a third of this.
    let ticket = one.lock(&name).ttl(Duration::from_secs(9)).acquire().await?.hand_out().await?;
    let guard = two.take_over(&ticket).await?;
    let Some(token) = ticket.token else { return Err(Failure::broken("no token")) };
    one.break_hold(&name, token, "it hung").await?;
    let told = tokio::time::timeout(PATIENT, guard.lost()).await;
    ensure!(told.is_ok(), "the one that took it over was not told");
    let why = guard.lost_reason().map(|reason| reason.to_string()).unwrap_or_default();
    ensure!(why.contains("it hung"), "the reason was not told: {why:?}");
    let released = guard.release().await;
    ensure!(released.is_err_and(|e| e.kind() == ErrorKind::Lost), "what was broken was released");
    Ok(())
}

async fn a_ticket_of_what_is_not_there_is_refused(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("elsewhere");
    let held = keeper.lock(&name).ttl(LONG).acquire().await?;
    // As a ticket of another store would be: a good name, and an id that this store never saw.
    let ticket = Ticket::new(Name::new(&name)?, Mode::Exclusive, ClaimId::random()?, LONG);
    let lost = |what: &str, kind: Option<ErrorKind>| {
        ensure!(kind == Some(ErrorKind::Lost), "{what} said {kind:?}");
        Ok(())
    };
    lost("keeping", keeper.keep(&ticket).await.err().map(|e| e.kind()))?;
    lost("giving back", keeper.give_back(&ticket).await.err().map(|e| e.kind()))?;
    lost("taking over", keeper.take_over(&ticket).await.err().map(|e| e.kind()))?;
    // As a ticket that was tampered with may be.
    for ttl in [Duration::ZERO, Duration::from_millis(u64::MAX), Duration::MAX] {
        let odd = ticket.clone().with_ttl(ttl);
        lost("giving back", keeper.give_back(&odd).await.err().map(|e| e.kind()))?;
        let kept = keeper.keep(&odd).await.err().map(|e| e.kind());
        ensure!(kept == Some(ErrorKind::Config), "a ttl of {ttl:?} said {kept:?}");
        let taken = keeper.take_over(&odd).await.err().map(|e| e.kind());
        ensure!(taken == Some(ErrorKind::Config), "a ttl of {ttl:?} said {taken:?}");
    }
    ensure!(held.is_held(), "the holder lost it");
    taken(&keeper, &name).await
}

async fn a_stale_ticket_does_nothing_to_the_next_holder(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("stale");
    let ticket = one.lock(&name).ttl(LONG).acquire().await?.hand_out().await?;
    two.give_back(&ticket).await?;
    let next = one.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
    ensure!(two.keep(&ticket).await.is_err(), "a claim that is over was kept");
    ensure!(two.give_back(&ticket).await.is_err(), "a claim that is over was given back");
    ensure!(two.take_over(&ticket).await.is_err(), "a claim that is over was taken over");
    ensure!(next.is_held(), "the next holder lost it");
    taken(&two, &name).await
}

/// Whenever it leaves: before the store was asked, while it is, or after.
async fn a_caller_that_leaves_while_handing_out_keeps_nothing(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    for micros in [0, 50, 200, 500, 1000, 3000] {
        let name = stage.name("left");
        let guard = keeper.lock(&name).ttl(LONG).acquire_within(PATIENT).await?;
        let limit = Duration::from_micros(micros);
        match tokio::time::timeout(limit, guard.hand_out()).await {
            Ok(ticket) => keeper.give_back(&ticket?).await?,
            Err(_) => free(&keeper, &name).await?,
        }
    }
    Ok(())
}

async fn several_are_handed_out_together(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let names = [stage.name("a"), stage.name("b"), stage.name("c")];
    let tickets = one.multi(&names).ttl(LONG).acquire().await?.hand_out().await?;
    ensure!(tickets.len() == 3, "{} tickets of three names", tickets.len());
    for (ticket, name) in tickets.iter().zip(&names) {
        ensure!(ticket.name.as_str() == name, "the ticket of {name} is of {}", ticket.name);
        taken(&one, name).await?;
        two.keep(ticket).await?;
        two.give_back(ticket).await?;
        free(&one, name).await?;
    }
    Ok(())
}

async fn what_has_bounds_is_not_handed_out(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("bounded");
    let guard = keeper.lock(&name).ttl(LONG).max_hold(LONG).acquire().await?;
    let refused = guard.hand_out().await;
    let kind = refused.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Config), "it was handed out, or said {kind:?}");
    free(&keeper, &name).await
}
