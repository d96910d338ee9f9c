//! `lock`.

use super::arguments::LockArguments;
use crate::claim::terms::Terms;
use crate::claim::{LAST_WAIT, queue};
use crate::exit::{self, Failure};
use crate::{Early, json, output};
use lockkeeper::{Keeper, Ticket};
use std::time::Instant;

pub(crate) fn lock(asked: &LockArguments, early: Early) -> Result<u8, Failure> {
    let names = asked.names.iter().map(String::as_str);
    let terms = Terms {
        note: asked.note.clone(),
        identity: asked.on_behalf_of.clone(),
        ..Terms::new(&asked.claim, names, asked.ttl)?
    };
    crate::wait_for(carry_out(asked, &terms, early))
}

async fn carry_out(asked: &LockArguments, terms: &Terms, early: Early) -> Result<u8, Failure> {
    // First of all, as in `run`: from the first moment on, a signal leaves the queue before it ends us.
    let mut interrupt = Interrupt::listen(early)?;
    let store = asked.store.url()?;
    let keeper = tokio::select! {
        biased;
        code = interrupt.code() => return Ok(code),
        keeper = super::connect(&store) => keeper?,
    };
    let outcome = tokio::select! {
        biased;
        // Until the ticket is there, what was taken is given back.
        code = interrupt.code() => Ok(code),
        tickets = take(&keeper, terms) => match tickets {
            Ok(tickets) => print(&keeper, &tickets, asked.json).await,
            Err(failure) => Err(failure),
        },
    };
    keeper.close(LAST_WAIT).await;
    outcome
}

async fn take(keeper: &Keeper, terms: &Terms) -> Result<Vec<Ticket>, Failure> {
    let owner = match &terms.owner {
        Some(owner) => owner.clone(),
        None => keeper.owner("lock"),
    };
    let asked_at = Instant::now();
    let held = queue::take(keeper, terms, &owner).await?;
    if terms.manner.verbose {
        output::say(&held.acquired_line(asked_at.elapsed()));
    }
    Ok(held.hand_out().await?)
}

/// Prints the tickets. A lock whose ticket nobody got is given back: it would be in everybody's way.
async fn print(keeper: &Keeper, tickets: &[Ticket], as_json: bool) -> Result<u8, Failure> {
    let text = match as_json {
        true => json::line(&tickets.iter().map(json::Locked::new).collect::<Vec<_>>()),
        false => tickets.iter().map(|ticket| format!("{ticket}\n")).collect(),
    };
    let why = match output::try_print(text) {
        Ok(true) => return Ok(exit::FINE),
        Ok(false) => "nobody reads the ticket".to_owned(),
        Err(failure) => failure.message,
    };
    let mut message = format!("{why}: the lock was given back");
    for ticket in tickets {
        if let Err(error) = keeper.give_back(ticket).await {
            message = format!("{why}, and the lock could not be given back: {error}");
        }
    }
    Err(Failure::new(exit::NO_OUTPUT, message))
}

/// The signals that end this process.
#[cfg(unix)]
pub(crate) struct Interrupt(crate::run::signals::Signals);

#[cfg(unix)]
impl Interrupt {
    pub(crate) fn listen(early: Early) -> Result<Self, Failure> {
        crate::run::signals::Signals::listen(early).map(Self)
    }

    /// The exit code for the next one. Cancel safe.
    pub(crate) async fn code(&mut self) -> u8 {
        exit::by_signal(self.0.ending().await as i32)
    }
}

#[cfg(not(unix))]
pub(crate) struct Interrupt;

#[cfg(not(unix))]
impl Interrupt {
    pub(crate) fn listen((): Early) -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(crate) async fn code(&mut self) -> u8 {
        std::future::pending().await
    }
}
