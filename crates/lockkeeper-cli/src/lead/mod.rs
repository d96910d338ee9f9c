//! `lead`: a command that runs while this process is the leader, and again after a loss.

mod back_off;
mod plan;

use crate::claim::held::Held;
use crate::claim::queue;
use crate::exit::{self, Failure};
use crate::run::signals::{Early, Signals};
use crate::run::supervise::Ended;
use crate::run::{GivenBack, Worked, terminal, with_keeper, work_under};
use crate::{claim, output};
use back_off::BackOff;
use lockkeeper::{ErrorKind, Keeper};
use plan::LeadPlan;
pub(crate) use plan::{EXIT_CODES, LeadArguments};
use tokio::time::{Instant, sleep};

pub(crate) fn lead(asked: &LeadArguments, early: Early) -> Result<u8, Failure> {
    let plan = LeadPlan::new(asked)?;
    if let Some(warning) = plan.run.warning() {
        output::say(warning);
    }
    // Before there are other threads: they inherit it.
    terminal::never_stop_for_output();
    crate::wait_for(carry_out(&plan, early))
}

async fn carry_out(plan: &LeadPlan, early: Early) -> Result<u8, Failure> {
    with_keeper(early, connect(plan), async |keeper, signals, unreleased| {
        terms_of_office(keeper, plan, signals, unreleased).await
    })
    .await
}

/// Connects, and finds out what waiting would not cure.
async fn connect(plan: &LeadPlan) -> Result<Keeper, Failure> {
    let keeper = claim::connect(&plan.run.store.url).await?;
    if !keeper.capability().fencing {
        return Err(Failure::usage(format!(
            "{keeper} has no fencing tokens, which the terms of leaders are: use another store or \
             recipe (see `lockkeeper recipes`)"
        )));
    }
    match keeper.show(plan.terms.names[0].as_str()).await {
        // A recipe that does not tell who holds a name can elect all the same.
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error.into()),
        _ => Ok(keeper),
    }
}

/// Leads as often as it is to be.
async fn terms_of_office(
    keeper: &Keeper,
    plan: &LeadPlan,
    signals: &mut Signals,
    unreleased: &mut Option<String>,
) -> Result<u8, Failure> {
    let mut back_off = BackOff::new();
    loop {
        // Another for each campaign: no term is mistaken for a part of the one before.
        let owner = keeper.owner("lead");
        let reign = tokio::select! {
            biased;
            signal = signals.ending() => return Ok(exit::by_signal(signal as i32)),
            held = queue::take(keeper, &plan.terms, &owner) => match held {
                Ok(held) => reign(held, keeper, plan, signals, unreleased).await?,
                // A candidate outlives an outage of its store: it was there when we began.
                Err(failure) if failure.code == exit::NO_STORE => Reign::not_begun(failure),
                Err(failure) => return Err(failure),
            },
        };
        let pause = back_off.after(reign.lasted);
        if let Some(code) = reign.last {
            return Ok(code);
        }
        let next = format!("{}; campaigns again in {}", reign.why, crate::text::span(pause));
        let _ = output::say_aside(next).await;
        tokio::select! {
            biased;
            signal = signals.ending() => return Ok(exit::by_signal(signal as i32)),
            () = sleep(pause) => {}
        }
    }
}

/// How a term of office went.
struct Reign {
    lasted: std::time::Duration,
    /// Our exit code, if it was the last one.
    last: Option<u8>,
    /// Why it ended, for people.
    why: String,
}

impl Reign {
    fn not_begun(failure: Failure) -> Self {
        Self { lasted: std::time::Duration::ZERO, last: None, why: failure.message }
    }
}

/// Runs the command once.
async fn reign(
    held: Held,
    keeper: &Keeper,
    plan: &LeadPlan,
    signals: &mut Signals,
    unreleased: &mut Option<String>,
) -> Result<Reign, Failure> {
    let begun = Instant::now();
    let name = plan.terms.names[0].as_str();
    let environment = held.environment();
    let term = environment.into_iter().find(|(name, _)| *name == "LOCKKEEPER_TOKEN");
    let term = term.and_then(|(_, token)| token).unwrap_or_default();
    // Not awaited: a stderr that is stuck must not keep the command from its beginning.
    drop(output::say_aside(format!("leads {name:?}, term {term}")));
    let Worked { ended, given_back, interrupted } =
        work_under(held, keeper, &plan.run, signals).await?;
    // Asked only now: a signal may have come after the command had ended.
    let asked_to_end = signals.asked_to_end().or(interrupted);
    let lost_since = matches!(given_back, GivenBack::Lost);
    if let GivenBack::NotYet(warning) = given_back {
        *unreleased = Some(warning);
    }
    let Ended { code, ran, stopped } = ended?;
    let lasted = begun.elapsed();
    let end = |code| Ok(Reign { lasted, last: Some(code), why: String::new() });
    match asked_to_end {
        Some(signal) if stopped => end(exit::by_signal(signal as i32)),
        _ if stopped => {
            let why = format!("{name:?} was lost and the command was stopped");
            Ok(Reign { lasted, last: None, why })
        }
        Some(_) => end(code),
        // It could not be executed, or was ended by a hangup: neither is a reason to try again.
        None if !plan.restart || !ran || code == exit::by_signal(HANGUP) => {
            // It ended by itself, but another leader may have been at work beside it.
            end(if lost_since { exit::LOST } else { code })
        }
        None => Ok(Reign { lasted, last: None, why: format!("the command ended with {code}") }),
    }
}

const HANGUP: i32 = nix::sys::signal::Signal::SIGHUP as i32;
