//! `run`: a command under a lock.

mod child;
mod held;
mod plan;
mod queue;
pub(crate) mod shim;
pub(crate) mod signals;
mod supervise;
mod terminal;
pub(crate) mod warden;

use crate::arguments::{OnLost, RunArguments};
use crate::exit::{self, Failure};
use crate::{output, text};
use child::Child;
use held::Held;
use lockkeeper::backend::Reach;
use lockkeeper::{ErrorKind, Keeper};
use plan::Plan;
use signals::{Early, Signals};
use std::time::Duration;
use supervise::{Ended, supervise};

/// How long we wait at the end for a withdrawal or a release that was not answered.
const LAST_WAIT: Duration = Duration::from_secs(2);

pub(crate) fn run(asked: &RunArguments, early: Early) -> Result<u8, Failure> {
    let plan = Plan::new(asked)?;
    if let Some(warning) = plan.warning() {
        output::say(warning);
    }
    // Before there are other threads: they inherit it.
    terminal::never_stop_for_output();
    crate::wait_for(carry_out(&plan, early))
}

async fn carry_out(plan: &Plan, early: Early) -> Result<u8, Failure> {
    // First of all, so that no signal can end us after we got the lock and before we handle
    // signals.
    let mut signals = Signals::listen(early)?;
    let keeper = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(exit::by_signal(signal as i32)),
        keeper = lockkeeper::connect(&plan.store) => keeper?,
    };
    if keeper.capability().reach == Reach::Process {
        return Err(Failure::usage(format!(
            "a lock in {keeper} excludes no other command: use a store that reaches further, such \
             as sqlite:"
        )));
    }
    let mut unreleased = None;
    let outcome = hold_and_work(&keeper, plan, &mut signals, &mut unreleased).await;
    let all_done = keeper.close(LAST_WAIT).await;
    // A release that was not answered is retried meanwhile, and mostly succeeds.
    if let Some(warning) = unreleased.filter(|_| !all_done) {
        output::say(&warning);
    }
    outcome
}

/// Sets `unreleased` to the warning to print if the lock is still not released at the end.
async fn hold_and_work(
    keeper: &Keeper,
    plan: &Plan,
    signals: &mut Signals,
    unreleased: &mut Option<String>,
) -> Result<u8, Failure> {
    let owner = match &plan.owner {
        Some(owner) => owner.clone(),
        None => keeper.owner("run"),
    };
    let mut held = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(exit::by_signal(signal as i32)),
        held = queue::take(keeper, plan, &owner) => held?,
    };
    signals.refuse_to_stop()?;
    let mut environment = held.environment();
    let store = plan::store_from_anywhere(&plan.store, &keeper.to_string());
    environment.push((plan::STORE_VARIABLE, Some(store)));
    let (outcome, ran) = match Child::start(&plan.command, &environment) {
        Ok(child) => {
            let Ended { code, ran } = supervise(child, &held, plan, signals).await;
            (Ok(code), ran)
        }
        Err(failure) => (Err(failure), false),
    };
    if !ran {
        held.cancel_min_hold();
    }
    // Ctrl-C here means: the command has ended, do not wait for a store that does not answer.
    let given_back = tokio::select! {
        given_back = give_back(held, keeper, plan.ttl) => given_back,
        _ = signals.ending() => GivenBack::Fine,
    };
    match (given_back, outcome) {
        // The command ended by itself, but another holder may have been at work beside it.
        (GivenBack::Lost, Ok(_)) if plan.on_lost == OnLost::Kill => Ok(exit::LOST),
        (GivenBack::NotYet(warning), outcome) => {
            *unreleased = Some(warning);
            outcome
        }
        (_, outcome) => outcome,
    }
}

/// The result of the release.
enum GivenBack {
    Fine,
    /// The lock had been lost before.
    Lost,
    /// The store did not answer; the release is retried in the background. The warning if that
    /// fails.
    NotYet(String),
}

async fn give_back(held: Held, keeper: &Keeper, ttl: Duration) -> GivenBack {
    let known = held.loss().is_some();
    let names = held.names_quoted();
    let Err(error) = held.release().await else { return GivenBack::Fine };
    let lost = error.kind() == ErrorKind::Lost;
    let why = Failure::from(error).message;
    if !lost {
        let when = match keeper.capability().session {
            true => "when the store ends the session".to_owned(),
            false => format!("in {}", text::span(ttl)),
        };
        let warning = format!("could not release {names}, which ends by itself {when}: {why}");
        return GivenBack::NotYet(warning);
    }
    if !known {
        output::say(&why);
    }
    GivenBack::Lost
}
