//! Claims that wander between processes.

use crate::case::Case;
use crate::cases::{Chosen, cases};
use crate::stage::{LONG, Stage, eventually, free, ms, taken};
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::{FencingToken, Name};
use lockkeeper::{ClaimId, Keeper, Mode, Ticket};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    let mut cases = Vec::new();
    if chosen.capability.portable {
        cases.extend(cases!("processes": a_ticket_outlives_the_process_that_handed_it_out));
    }
    if chosen.capability.by_id {
        cases.extend(cases!("processes": a_claim_is_found_by_its_id_after_its_process_was_killed));
    }
    if chosen.capability.by_id && chosen.capability.fencing && chosen.inspects {
        cases.extend(cases!("processes": what_was_broken_is_another_when_it_is_asked_for_again));
    }
    cases
}

async fn a_ticket_outlives_the_process_that_handed_it_out(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut first, mut second) =
        (stage.keeper().await?, stage.process()?, stage.process()?);
    let name = stage.name("wanders");
    let ttl = stage.ttl_ms(3000);
    first.take("a", &format!("ttl={ttl} name={name}")).await?;
    let answer = first.ask("a", "hand-out").await?;
    let Some(text) = answer.strip_prefix("ticket ") else {
        return Err(Failure::broken(format!("no ticket: {answer}")));
    };
    let ticket: Ticket = text.parse()?;
    first.kill()?;
    let kept = second.ask("b", &format!("keep name={text}")).await?;
    ensure!(kept.starts_with("kept "), "another process could not keep it: {kept}");
    taken(&keeper, &name).await?;
    // Longer than the session of the one that was killed would have lasted.
    keeper.keep(&ticket.clone().with_ttl(LONG)).await?;
    tokio::time::sleep(stage.ttl(Duration::from_secs(4))).await;
    taken(&keeper, &name).await?;
    let given_back = second.ask("b", &format!("give-back name={text}")).await?;
    ensure!(given_back == "given back", "another process could not give it back: {given_back}");
    free(&keeper, &name).await
}

async fn a_claim_is_found_by_its_id_after_its_process_was_killed(stage: Arc<Stage>) -> Outcome {
    let (keeper, mut process) = (stage.keeper().await?, stage.process()?);
    let (name, id) = (stage.name("found"), ClaimId::random()?);
    let token = process.take("a", &format!("ttl={} id={id} name={name}", LONG.as_millis())).await?;
    process.kill()?;
    taken(&keeper, &name).await?;
    let Some(found) = keeper.lock(&name).ttl(LONG).claim(id).try_acquire().await? else {
        return Err(Failure::broken("its own claim kept it out"));
    };
    let now = found.token().map_or(0, |token| token.get());
    ensure!(now == token, "the token was {token}, and is {now}");
    found.release().await?;
    free(&keeper, &name).await
}

/// A process hangs, and an operator takes its claim away; the client repeats its request elsewhere, under the
/// same id. When the process goes on, it learns that its claim was broken, and leaves the new one alone.
async fn what_was_broken_is_another_when_it_is_asked_for_again(stage: Arc<Stage>) -> Outcome {
    let (one, two, mut process) = (stage.keeper().await?, stage.keeper().await?, stage.process()?);
    let (name, id) = (stage.name("again"), ClaimId::random()?);
    // Stores that do not tell are asked by a renewal, within a third of this.
    let ttl = Duration::from_secs(12);
    let order = format!("ttl={} id={id} name={name}", ttl.as_millis());
    let token = process.take("a", &order).await?;
    stage.pause(&process).await?;
    let broken = FencingToken::new(token).ok_or_else(|| Failure::broken("no token"))?;
    one.break_hold(&name, broken, "it hung").await?;
    let ask = |keeper: &Keeper| keeper.lock(&name).ttl(ttl).claim(id);
    let Some(again) = ask(&one).try_acquire().await? else {
        return Err(Failure::broken("what was broken kept it out"));
    };
    ensure!(again.token() > Some(broken), "{broken}, then {:?}", again.token());
    let ticket = Ticket::new(Name::new(&name)?, Mode::Exclusive, id, ttl);
    two.keep(&ticket).await?;
    let Some(found) = ask(&two).try_acquire().await? else {
        return Err(Failure::broken("its own claim kept it out"));
    };
    ensure!(found.token() == again.token(), "{:?}, then {:?}", again.token(), found.token());
    found.detach();
    process.go_on()?;
    eventually("the one that hung is told", async || {
        Ok((process.ask("a", "held").await? == "no").then_some(()))
    })
    .await?;
    tokio::time::sleep(ms(300)).await;
    taken(&two, &name).await?;
    two.keep(&ticket).await?;
    ensure!(again.is_held(), "it was lost: {:?}", again.lost_reason());
    again.release().await?;
    free(&two, &name).await
}
