//! The terms of a claim, set the same way on everything that can be acquired.

use crate::backend::Capability;
use crate::claim::{Claim, Mode, Owner, Primitive};
use crate::engine::{Attempt, Engine};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Bounds;
use crate::name::Name;
use crate::recipes::{Recipe, recipes};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);
const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);
const LONGEST_BOUND: Duration = Duration::from_secs(366 * 24 * 3600);
pub(crate) const LONGEST_NOTE: usize = 1000;

#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) owner: Option<Owner>,
    pub(crate) note: Arc<str>,
    pub(crate) bounds: Bounds,
    pub(crate) primitive: Primitive,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            ttl: DEFAULT_TTL,
            owner: None,
            note: "".into(),
            bounds: Bounds::default(),
            primitive: Primitive::Lock,
        }
    }
}

impl Terms {
    /// Checks the terms against what the backend can do, and makes the claim.
    pub(crate) fn attempt(&self, engine: &Engine, name: Name, mode: Mode) -> Result<Attempt> {
        self.check(engine, mode)?;
        let id = engine.ids.next();
        let owner = self.owner.clone().unwrap_or_else(|| Owner::from_id(id.to_string()));
        let claim = Claim {
            id,
            name,
            mode,
            primitive: self.primitive,
            owner,
            ttl: self.ttl,
            identity: engine.identity.clone(),
            note: self.note.clone(),
        };
        Ok(Attempt { claim, bounds: self.bounds, named_owner: self.owner.is_some() })
    }

    fn check(&self, engine: &Engine, mode: Mode) -> Result<()> {
        let config = |message: String| Err(Error::new(ErrorKind::Config, message));
        let capability = engine.backend.capability();
        let shortest = capability.shortest_ttl;
        if !(shortest..=LONGEST_TTL).contains(&self.ttl) {
            return config(format!(
                "a ttl on {} is between {shortest:?} and 24 hours, not {:?}: a shorter one could \
                 not be kept by its clock or renewed in time, and a claim is renewed for as long as \
                 its holder lives, so that the ttl need not cover the work",
                engine.backend, self.ttl
            ));
        }
        for (what, bound) in
            [("max_hold", self.bounds.max_hold), ("min_hold", self.bounds.min_hold)]
        {
            if bound.is_some_and(|bound| bound.is_zero() || bound > LONGEST_BOUND) {
                return config(format!("{what} is more than zero and at most 366 days"));
            }
        }
        if let Bounds { max_hold: Some(most), min_hold: Some(least) } = self.bounds
            && least > most
        {
            return config(format!("min_hold ({least:?}) is longer than max_hold ({most:?})"));
        }
        if self.note.len() > LONGEST_NOTE {
            return config(format!("a note has at most {LONGEST_NOTE} bytes"));
        }
        if mode == (Mode::Permit { of: 0 }) {
            return config("a semaphore needs at least one permit".into());
        }
        if !capability.has(mode) {
            let what = if mode == Mode::Shared { "shared mode" } else { "permits" };
            return Err(unsupported(engine, what, |capability| capability.has(mode)));
        }
        if self.bounds.min_hold.is_some() && !capability.min_hold {
            return Err(unsupported(engine, "min_hold", |capability| capability.min_hold));
        }
        Ok(())
    }
}

/// The refusal of something this backend does not have, naming those that do.
pub(crate) fn unsupported(engine: &Engine, what: &str, has: impl Fn(&Capability) -> bool) -> Error {
    let fit = |recipe: &Recipe| has(&recipe.capability) && recipe.capability.sound;
    let have: Vec<_> =
        recipes().iter().filter(|recipe| fit(recipe)).map(|recipe| recipe.example).collect();
    let message = format!("{} has no {what}: {} do", engine.backend, have.join(" and "));
    Error::new(ErrorKind::Unsupported, message)
}

/// The setters of [`Terms`], for a builder with a field `terms`.
macro_rules! terms_setters {
    () => {
        /// How long the store keeps the claim without a renewal: the time others wait after a
        /// crash. Renewed every third of it. Default 30 s.
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.terms.ttl = ttl;
            self
        }

        /// Whose claims count as one: an owner that asks again for what it holds gets it at
        /// once. Without this every guard is its own owner.
        pub fn owner(mut self, owner: &crate::claim::Owner) -> Self {
            self.terms.owner = Some(owner.clone());
            self
        }

        /// Free text shown to those who wait, at most 1000 bytes.
        pub fn note(mut self, note: &str) -> Self {
            self.terms.note = note.into();
            self
        }

        /// The longest time to hold: then the claim counts as lost. For work that may hang.
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.terms.bounds.max_hold = Some(most);
            self
        }

        /// The shortest time to hold: released earlier, the claim stays in the store for the
        /// rest of it, even when this process ends. For jobs that run once per period. A holder
        /// that crashes before it releases leaves the claim to its ttl only.
        pub fn min_hold(mut self, least: std::time::Duration) -> Self {
            self.terms.bounds.min_hold = Some(least);
            self
        }
    };
}
pub(crate) use terms_setters;
