//! Three ways to end a hold, from any place.

use super::{Chosen, cases};
use crate::case::Case;
use crate::stage::{LONG, SHORT, Stage, free, most_of_long, taken};
use crate::verdict::{Outcome, ensure};
use lockkeeper::backend::Moment;
use std::sync::Arc;

pub(super) fn cases(_: &Chosen) -> Vec<Case> {
    cases!("guards":
        dropping_one_releases,
        dropping_one_on_a_plain_thread_releases,
        dropping_one_in_a_panic_releases,
        detaching_one_keeps_it_until_its_ttl,
        the_last_share_out_releases,
        a_share_detached_first_does_not_count,
        work_runs_while_it_is_held,
        waiting_for_the_loss_does_no_harm,
        what_they_say_of_themselves_is_so,
    )
}

async fn dropping_one_releases(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("dropped");
    drop(one.lock(&name).ttl(LONG).acquire().await?);
    free(&two, &name).await
}

async fn dropping_one_on_a_plain_thread_releases(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("carried off");
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    let outside = std::thread::spawn(move || {
        let inside = tokio::runtime::Handle::try_current().is_ok();
        drop(guard);
        inside
    });
    let inside = tokio::task::spawn_blocking(move || outside.join()).await?;
    ensure!(matches!(inside, Ok(false)), "dropping failed, or was not outside a runtime");
    free(&two, &name).await
}

async fn dropping_one_in_a_panic_releases(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("panicked");
    let guard = one.lock(&name).ttl(LONG).acquire().await?;
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        // Unwinds like a panic, but prints no message.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    ensure!(panicked.await.is_err_and(|error| error.is_panic()), "it did not panic");
    free(&two, &name).await
}

async fn detaching_one_keeps_it_until_its_ttl(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("detached");
    let guard = one.lock(&name).ttl(stage.ttl(SHORT)).acquire().await?;
    let valid_until = Moment::now() + guard.remaining();
    guard.detach();
    let tried = two.lock(&name).ttl(LONG).try_acquire().await?;
    ensure!(tried.is_none() || valid_until.remaining().is_zero(), "free as soon as detached");
    drop(tried);
    free(&two, &name).await
}

async fn the_last_share_out_releases(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("shared");
    let first = one.lock(&name).ttl(LONG).acquire().await?;
    let (second, third) = (first.share(), first.share());
    ensure!(first.token() == second.token(), "a share has another token");
    first.release().await?;
    taken(&two, &name).await?;
    drop(second);
    taken(&two, &name).await?;
    ensure!(third.is_held(), "the last share does not hold it");
    third.release().await?;
    free(&two, &name).await
}

async fn a_share_detached_first_does_not_count(stage: Arc<Stage>) -> Outcome {
    let (one, two) = (stage.keeper().await?, stage.keeper().await?);
    let name = stage.name("half detached");
    let first = one.lock(&name).ttl(LONG).acquire().await?;
    let second = first.share();
    first.detach();
    ensure!(second.is_held(), "detaching one of two ended both");
    second.release().await?;
    free(&two, &name).await
}

async fn work_runs_while_it_is_held(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let guard = keeper.lock(stage.name("worked")).ttl(LONG).acquire().await?;
    let answer = guard.run(async { 6 * 7 }).await?;
    ensure!(answer == 42 && guard.is_held(), "the work did not run");
    Ok(())
}

async fn waiting_for_the_loss_does_no_harm(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("signalled");
    let guard = keeper.lock(&name).ttl(LONG).acquire().await?;
    let share = guard.share();
    // The wait for a loss times out, and is cancelled half-way.
    ensure!(tokio::time::timeout(SHORT / 4, guard.lost()).await.is_err(), "its loss was signalled");
    ensure!(guard.is_held() && guard.lost_reason().is_none(), "to wait for the loss ended it");
    ensure!(!share.lost().is_signalled(), "the loss of another guard was signalled");
    ensure!(guard.run(async {}).await.is_ok(), "work counts as lost");
    taken(&keeper, &name).await
}

async fn what_they_say_of_themselves_is_so(stage: Arc<Stage>) -> Outcome {
    let keeper = stage.keeper().await?;
    let name = stage.name("told");
    let guard = keeper.lock(&name).ttl(LONG).acquire().await?;
    ensure!(guard.name().as_str() == name, "the name is {:?}", guard.name());
    ensure!(guard.remaining() < LONG, "it is valid for no less than its ttl");
    let least = most_of_long(&keeper.capability());
    ensure!(guard.remaining() > least, "it is valid for {:?}", guard.remaining());
    ensure!(guard.until_others() <= LONG, "others are kept out for longer than the ttl");
    ensure!(!guard.lost().is_signalled() && guard.lost_reason().is_none(), "it counts as lost");
    Ok(())
}
