//! `run`: a command under a lock.

mod child;
mod held;
mod plan;
mod queue;
pub(crate) mod shim;
mod signals;
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
use signals::Signals;
use std::time::Duration;

/// How long a withdrawal or a release that was not answered is waited for at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);

pub(crate) fn run(asked: &RunArguments) -> Result<u8, Failure> {
    let plan = Plan::new(asked)?;
    // Before there are other threads: they inherit it.
    terminal::never_stop_for_output();
    crate::wait_for(carry_out(&plan))
}

async fn carry_out(plan: &Plan) -> Result<u8, Failure> {
    // First of all, so that no signal can end us between winning the lock and caring for it.
    let mut signals = Signals::listen()?;
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
    // What the library warns of when it connects, and nobody would see here.
    if keeper.to_string().contains("(unsafe ") {
        output::say(&format!("{keeper} is there to be seen failing: it does not keep others out"));
    }
    let outcome = hold_and_work(&keeper, plan, &mut signals).await;
    keeper.close(LAST_WAIT).await;
    outcome
}

async fn hold_and_work(keeper: &Keeper, plan: &Plan, signals: &mut Signals) -> Result<u8, Failure> {
    let owner = match &plan.owner {
        Some(owner) => owner.clone(),
        None => keeper.owner("run"),
    };
    let held = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(exit::by_signal(signal as i32)),
        held = queue::take(keeper, plan, &owner) => held?,
    };
    signals.refuse_to_stop()?;
    let mut environment = held.environment();
    let store = plan::store_from_anywhere(&plan.store, &keeper.to_string());
    environment.push((plan::STORE_VARIABLE, Some(store)));
    let child = Child::start(&plan.command, &environment);
    let outcome = match child {
        Ok(child) => Ok(supervise::supervise(child, &held, plan, signals).await),
        Err(failure) => Err(failure),
    };
    // Ctrl-C here means: the command is through, do not wait for a store that does not answer.
    let lost = tokio::select! {
        lost = give_back(held, keeper, plan.ttl) => lost,
        _ = signals.ending() => false,
    };
    match outcome {
        // It ended by itself, but may not have been alone.
        Ok(_) if lost && plan.on_lost == OnLost::Kill => Ok(exit::LOST),
        outcome => outcome,
    }
}

/// Whether it had been lost before it was given back.
async fn give_back(held: Held, keeper: &Keeper, ttl: Duration) -> bool {
    let known = held.loss().is_some();
    let names = held.names_quoted();
    let Err(error) = held.release().await else { return false };
    let lost = error.kind() == ErrorKind::Lost;
    let why = Failure::from(error).message;
    if !lost {
        let when = match keeper.capability().session {
            true => "when the store ends the session".to_owned(),
            false => format!("in {}", text::span(ttl)),
        };
        output::say(&format!("could not release {names}, which ends by itself {when}: {why}"));
    } else if !known {
        output::say(&why);
    }
    lost
}
