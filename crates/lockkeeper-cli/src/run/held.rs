//! What a run holds: one lock or several.

use super::plan::OWNER_VARIABLE;
use crate::json::mode_word;
use lockkeeper::{Guard, LossReason, Lost, MultiGuard, Name, Result};
use std::time::Duration;

pub(crate) enum Held {
    One(Guard),
    Several(MultiGuard),
}

impl Held {
    fn guards(&self) -> &[Guard] {
        match self {
            Held::One(guard) => std::slice::from_ref(guard),
            Held::Several(guards) => guards.guards(),
        }
    }

    pub(crate) fn lost(&self) -> Lost {
        match self {
            Held::One(guard) => guard.lost(),
            Held::Several(guards) => guards.lost(),
        }
    }

    /// Which name was lost first, and why.
    pub(crate) fn loss(&self) -> Option<(&Name, LossReason)> {
        self.guards().iter().find_map(|guard| Some((guard.name(), guard.lost_reason()?)))
    }

    /// How long it is certain that nobody else can be granted any of the locks.
    pub(crate) fn until_others(&self) -> Duration {
        match self {
            Held::One(guard) => guard.until_others(),
            Held::Several(guards) => guards.until_others(),
        }
    }

    /// `"a", "b"`, for messages.
    pub(crate) fn names_quoted(&self) -> String {
        let names: Vec<_> = self.guards().iter().map(|g| format!("{:?}", g.name())).collect();
        names.join(", ")
    }

    /// The command's variables. A variable without a value is removed from its environment;
    /// otherwise the command would see the value of an enclosing run.
    pub(crate) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let guards = self.guards();
        let names: Vec<_> = guards.iter().map(|guard| guard.name().as_str()).collect();
        let tokens: Option<Vec<_>> =
            guards.iter().map(|guard| Some(guard.token()?.to_string())).collect();
        let first = guards.first();
        vec![
            ("LOCKKEEPER_NAME", Some(names.join(","))),
            ("LOCKKEEPER_TOKEN", tokens.map(|tokens| tokens.join(","))),
            ("LOCKKEEPER_MODE", first.map(|guard| mode_word(guard.mode()).to_owned())),
            (OWNER_VARIABLE, first.map(|guard| guard.owner().id().to_owned())),
        ]
    }

    /// The command has not run, so the lock need not stay for its `min_hold`.
    pub(crate) fn cancel_min_hold(&mut self) {
        match self {
            Held::One(guard) => guard.cancel_min_hold(),
            Held::Several(guards) => guards.cancel_min_hold(),
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Held::One(guard) => guard.release().await,
            Held::Several(guards) => guards.release().await,
        }
    }
}
