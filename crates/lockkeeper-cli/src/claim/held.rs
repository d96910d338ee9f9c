//! What is held: one lock or several.

use super::names;
use super::terms::OWNER_VARIABLE;
use crate::json::mode_word;
use crate::text;
use lockkeeper::{Guard, LossReason, MultiGuard, Name, Owner, Result, Ticket};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

pub(crate) enum Held {
    One(Guard),
    Several(MultiGuard),
    /// Taken over by tickets. Their owner, where the store says that all have the same one.
    TakenOver(Vec<Guard>, Option<Owner>),
}

impl Held {
    fn guards(&self) -> &[Guard] {
        match self {
            Held::One(guard) => std::slice::from_ref(guard),
            Held::Several(guards) => guards.guards(),
            Held::TakenOver(guards, _) => guards,
        }
    }

    /// Resolves when any of them is lost.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + Unpin + use<> {
        let mut losses: Vec<_> = self.guards().iter().map(Guard::lost).collect();
        poll_fn(move |context| {
            match losses.iter_mut().any(|lost| Pin::new(lost).poll(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
    }

    /// Which name was lost first, and why.
    pub(crate) fn loss(&self) -> Option<(&Name, LossReason)> {
        self.guards().iter().find_map(|guard| Some((guard.name(), guard.lost_reason()?)))
    }

    /// How long it is certain that nobody else can be granted any of the locks.
    pub(crate) fn until_others(&self) -> Duration {
        self.guards().iter().map(Guard::until_others).min().unwrap_or_default()
    }

    /// `"a", "b"`, for messages.
    pub(crate) fn names_quoted(&self) -> String {
        let names: Vec<_> = self.guards().iter().map(|g| format!("{:?}", g.name())).collect();
        names.join(", ")
    }

    /// For those who want to know: `acquired "x" after 12s, token 1794779023296693`.
    pub(crate) fn acquired_line(&self, waited: Duration) -> String {
        let tokens: Vec<_> = self.guards().iter().filter_map(Guard::token).collect();
        let tokens: Vec<_> = tokens.iter().map(ToString::to_string).collect();
        let tokens = match &tokens[..] {
            [] => String::new(),
            [one] => format!(", token {one}"),
            several => format!(", tokens {}", several.join(", ")),
        };
        let did = if matches!(self, Held::TakenOver(..)) { "took over" } else { "acquired" };
        format!("{did} {} after {}{tokens}", self.names_quoted(), text::span(waited))
    }

    /// The command's variables. A variable without a value is removed from its environment;
    /// otherwise the command would see the value of an enclosing run.
    pub(crate) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let guards = self.guards();
        let names = names::join(guards.iter().map(Guard::name));
        let tokens: Option<Vec<_>> =
            guards.iter().map(|guard| Some(guard.token()?.to_string())).collect();
        let first = guards.first();
        vec![
            ("LOCKKEEPER_NAME", Some(names)),
            ("LOCKKEEPER_TOKEN", tokens.map(|tokens| tokens.join(","))),
            ("LOCKKEEPER_MODE", first.map(|guard| mode_word(guard.mode()).to_owned())),
            (OWNER_VARIABLE, self.owner().map(|owner| owner.id().to_owned())),
        ]
    }

    /// The owner by which the store knows them.
    fn owner(&self) -> Option<&Owner> {
        match self {
            Held::TakenOver(_, owner) => owner.as_ref(),
            _ => self.guards().first().map(Guard::owner),
        }
    }

    /// The command has not run, so the lock need not stay for its `min_hold`.
    pub(crate) fn cancel_min_hold(&mut self) {
        match self {
            Held::One(guard) => guard.cancel_min_hold(),
            Held::Several(guards) => guards.cancel_min_hold(),
            // No ticket has any.
            Held::TakenOver(..) => {}
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Held::One(guard) => guard.release().await,
            Held::Several(guards) => guards.release().await,
            Held::TakenOver(guards, _) => {
                let mut outcome = Ok(());
                for guard in guards.into_iter().rev() {
                    let released = guard.release().await;
                    outcome = outcome.and(released);
                }
                outcome
            }
        }
    }

    /// Leaves them to their tickets, all or none.
    pub(crate) async fn hand_out(self) -> Result<Vec<Ticket>> {
        match self {
            Held::One(guard) => Ok(vec![guard.hand_out().await?]),
            Held::Several(guards) => guards.hand_out().await,
            Held::TakenOver(..) => unreachable!("who took them over has their tickets"),
        }
    }
}
