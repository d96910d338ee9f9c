//! One leader at a time.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, PATIENT, Stage};
use crate::verdict::{Failure, Outcome, ensure};
use futures_util::{Stream, StreamExt};
use lockkeeper::{ErrorKind, Leader, Result};
use std::pin::Pin;
use std::sync::Arc;

pub(super) fn cases(chosen: &Chosen) -> Vec<Case> {
    if !chosen.capability.fencing {
        return Vec::new();
    }
    let mut cases = cases!("election":
        one_leads_and_the_next_follows_with_a_later_term,
        one_that_leads_keeps_others_from_it,
    );
    if chosen.inspects {
        cases.extend(cases!("election": observers_see_who_leads));
    }
    cases
}

async fn one_leads_and_the_next_follows_with_a_later_term(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("office");
    let first = one.election(&name).ttl(LONG).campaign().await?;
    let election = two.election(&name).ttl(LONG);
    let candidate = tokio::spawn(async move { election.campaign_within(PATIENT).await });
    let term = first.term();
    first.resign().await?;
    let second = candidate.await??;
    ensure!(second.term() > term, "{term:?}, then {:?}", second.term());
    ensure!(second.guard().is_held(), "elected, and yet not in office");
    second.resign().await?;
    Ok(())
}

async fn one_that_leads_keeps_others_from_it(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("office");
    let leader = one.election(&name).ttl(LONG).note("first").campaign().await?;
    let tried = two.election(&name).try_campaign().await?;
    ensure!(tried.is_none(), "two lead at once");
    let late = two.election(&name).campaign_within(crate::stage::ms(50)).await;
    let kind = late.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::TimedOut), "a campaign in vain gave {kind:?}");
    drop(leader);
    two.election(&name).ttl(LONG).campaign_within(PATIENT).await?.resign().await?;
    Ok(())
}

type Leaders = Pin<Box<dyn Stream<Item = Result<Option<Leader>>> + Send>>;

async fn next(leaders: &mut Leaders) -> Outcome<Option<Leader>> {
    match tokio::time::timeout(PATIENT, leaders.next()).await {
        Ok(Some(leader)) => Ok(leader?),
        Ok(None) => Err(Failure::broken("the stream of leaders ended")),
        Err(_) => Err(Failure::broken("no change of leader was seen")),
    }
}

async fn observers_see_who_leads(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("watched");
    let mut leaders: Leaders = Box::pin(two.election(&name).observe()?);
    ensure!(next(&mut leaders).await?.is_none(), "someone leads before anyone campaigned");
    let first = one.election(&name).ttl(LONG).note("first").campaign().await?;
    let seen = next(&mut leaders).await?;
    let right = seen.as_ref().is_some_and(|l| l.note == "first" && l.term == first.term());
    ensure!(right, "seen as leading: {seen:?}");
    first.resign().await?;
    ensure!(next(&mut leaders).await?.is_none(), "a leader that resigned is still seen");
    let second = one.election(&name).ttl(LONG).note("second").campaign().await?;
    let later = next(&mut leaders).await?;
    ensure!(later.as_ref().is_some_and(|l| l.note == "second"), "seen as leading: {later:?}");
    ensure!(later.map(|l| l.term) > seen.map(|l| l.term), "the later term is not larger");
    second.resign().await?;
    Ok(())
}
