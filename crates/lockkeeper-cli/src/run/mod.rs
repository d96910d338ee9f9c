//! `run`: a command under a lock.

pub(crate) mod child;
pub(crate) mod plan;
pub(crate) mod shim;
pub(crate) mod signals;
pub(crate) mod supervise;
mod take_over;
pub(crate) mod terminal;
pub(crate) mod warden;

use crate::arguments::{OnLost, RunArguments};
use crate::claim::held::Held;
use crate::claim::{self, LAST_WAIT, queue};
use crate::exit::{self, Failure};
use crate::{output, text, ticket};
use child::Child;
use lockkeeper::{ErrorKind, Keeper};
use nix::sys::signal::Signal;
use plan::{Locks, Plan};
use signals::{Early, Signals};
use std::ffi::OsString;
use std::time::{Duration, Instant};
use supervise::{Ended, supervise};

pub(crate) fn run(asked: &RunArguments, early: Early) -> Result<u8, Failure> {
    let plan = Plan::new(asked, std::env::args_os())?;
    if let Some(warning) = plan.warning().filter(|_| !plan.manner.quiet) {
        output::say(warning);
    }
    // Before there are other threads: they inherit it.
    terminal::never_stop_for_output();
    crate::wait_for(carry_out(&plan, early))
}

async fn carry_out(plan: &Plan, early: Early) -> Result<u8, Failure> {
    with_keeper(early, connect(plan), async |keeper, signals, unreleased| {
        hold_and_work(keeper, plan, signals, unreleased).await
    })
    .await
}

/// Listens for signals, connects, does `work` and closes the keeper. `work` sets the last of what it
/// gets to the warning to print if a lock is still not released at the end.
pub(crate) async fn with_keeper(
    early: Early,
    connecting: impl Future<Output = Result<Keeper, Failure>>,
    work: impl AsyncFnOnce(&Keeper, &mut Signals, &mut Option<String>) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    // First of all, so that no signal can end us after we got the lock and before we handle
    // signals.
    let mut signals = Signals::listen(early)?;
    let keeper = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(exit::by_signal(signal as i32)),
        keeper = connecting => keeper?,
    };
    let mut unreleased = None;
    let outcome = work(&keeper, &mut signals, &mut unreleased).await;
    let all_done = keeper.close(LAST_WAIT).await;
    // A release that was not answered is retried meanwhile, and mostly succeeds.
    if let Some(warning) = unreleased.filter(|_| !all_done) {
        output::say(&warning);
    }
    outcome
}

async fn connect(plan: &Plan) -> Result<Keeper, Failure> {
    match plan.locks {
        Locks::Named(_) => claim::connect(&plan.store.url).await,
        Locks::Ticketed(_) => ticket::connect(&plan.store.url).await,
    }
}

/// Cancel safe: names are no longer waited for, and tickets stay good.
async fn take(keeper: &Keeper, locks: &Locks) -> Result<Held, Failure> {
    match locks {
        Locks::Named(terms) => {
            let owner = terms.owner.clone().unwrap_or_else(|| keeper.owner("run"));
            queue::take(keeper, terms, &owner).await
        }
        Locks::Ticketed(tickets) => take_over::take_over(keeper, tickets).await,
    }
}

/// Sets `unreleased` to the warning to print if the lock is still not released at the end.
async fn hold_and_work(
    keeper: &Keeper,
    plan: &Plan,
    signals: &mut Signals,
    unreleased: &mut Option<String>,
) -> Result<u8, Failure> {
    let asked_at = Instant::now();
    let held = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(exit::by_signal(signal as i32)),
        held = take(keeper, &plan.locks) => held?,
    };
    let (acquired_at, names) = (Instant::now(), held.names_quoted());
    let verbose = plan.manner.verbose;
    if verbose {
        // Not awaited: a stderr that is stuck must not keep the command from starting.
        drop(output::tell_aside(held.acquired_line(acquired_at - asked_at)));
    }
    let Worked { ended, given_back, .. } = work_under(held, keeper, plan, signals).await?;
    if verbose && matches!(given_back, GivenBack::Fine) {
        output::say(&format!("released {names} after {}", text::span(acquired_at.elapsed())));
    }
    match (given_back, ended.map(|ended| ended.code)) {
        // The command ended by itself, but another holder may have been at work beside it.
        (GivenBack::Lost, Ok(_)) if plan.on_lost == OnLost::Kill => Ok(exit::LOST),
        (GivenBack::NotYet(warning), outcome) => {
            *unreleased = Some(warning);
            outcome
        }
        (_, outcome) => outcome,
    }
}

/// What became of a command, and of the locks that it ran under.
pub(crate) struct Worked {
    pub(crate) ended: Result<Ended, Failure>,
    pub(crate) given_back: GivenBack,
    /// The signal for which the answer to the release was not waited for.
    pub(crate) interrupted: Option<Signal>,
}

/// Runs the command under the locks, and gives them back.
pub(crate) async fn work_under(
    mut held: Held,
    keeper: &Keeper,
    plan: &Plan,
    signals: &mut Signals,
) -> Result<Worked, Failure> {
    signals.refuse_to_stop()?;
    let ours = held.environment().into_iter();
    let mut environment: Vec<_> =
        ours.map(|(name, value)| (name, value.map(OsString::from))).collect();
    environment.extend(plan::store_variables(&plan.store, &keeper.to_string()));
    let ended = match Child::start(&plan.command, &environment) {
        Ok(child) => Ok(supervise(child, &held, plan, signals).await),
        Err(failure) => Err(failure),
    };
    if !ended.as_ref().is_ok_and(|ended| ended.ran) {
        held.cancel_min_hold();
    }
    let mut interrupted = None;
    // Ctrl-C here means: the command has ended, do not wait for a store that does not answer.
    let given_back = tokio::select! {
        given_back = give_back(held, keeper, plan.ttl) => given_back,
        signal = signals.ending() => {
            interrupted = Some(signal);
            GivenBack::Unknown
        }
    };
    Ok(Worked { ended, given_back, interrupted })
}

/// The result of the release.
pub(crate) enum GivenBack {
    Fine,
    /// We did not wait for the answer.
    Unknown,
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
