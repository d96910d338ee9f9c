//! The terms of a claim, set the same way on everything that can be acquired.

use crate::backend::{Capability, Reach};
use crate::claim::{Claim, ClaimId, Mode, Owner, Primitive};
use crate::engine::{Attempt, Engine};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Bounds;
use crate::name::Name;
use crate::recipes::{Recipe, recipes};
use crate::ticket::Ticket;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);
const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);
const LONGEST_BOUND: Duration = Duration::from_secs(366 * 24 * 3600);
const LONGEST_NOTE: usize = 1000;
const LONGEST_IDENTITY: usize = 200;

#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) owner: Option<Owner>,
    pub(crate) note: Arc<str>,
    pub(crate) bounds: Bounds,
    pub(crate) primitive: Primitive,
    /// Under which id to ask, where the caller chose one.
    pub(crate) id: Option<ClaimId>,
    /// Who is shown, where that is not this process.
    pub(crate) identity: Option<Arc<str>>,
    /// Whether the caller counts on a fencing token.
    pub(crate) fenced: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            ttl: DEFAULT_TTL,
            owner: None,
            note: "".into(),
            bounds: Bounds::default(),
            primitive: Primitive::Lock,
            id: None,
            identity: None,
            fenced: false,
        }
    }
}

impl Terms {
    /// Those of a claim that was granted before, and is kept by its ticket.
    pub(crate) fn of_ticket(ticket: &Ticket) -> Self {
        Self { ttl: ticket.ttl, ..Self::default() }
    }

    /// Checks the terms against what the backend can do, and makes the claim.
    pub(crate) fn attempt(&self, engine: &Engine, name: Name, mode: Mode) -> Result<Attempt> {
        self.check(engine, mode)?;
        let id = self.id.unwrap_or_else(|| engine.ids.next());
        let owner = match (&self.owner, self.id) {
            (Some(owner), _) => owner.clone(),
            (None, None) => Owner::from_id(id.to_string()),
            (None, Some(id)) => owner_by_id(id),
        };
        let claim = Claim {
            id,
            name,
            mode,
            primitive: self.primitive,
            owner,
            ttl: self.ttl,
            identity: self.identity.as_ref().unwrap_or(&engine.identity).clone(),
            note: self.note.clone(),
            by_id: self.id.is_some(),
        };
        let named_owner = self.owner.is_some() || self.id.is_some();
        Ok(Attempt { claim, bounds: self.bounds, named_owner })
    }

    /// The same for one of several names, each of which has an id of its own.
    pub(crate) fn part(&self, engine: &Engine, name: Name, mode: Mode) -> Result<Attempt> {
        let id = self.id.map(|id| id.of_part(&name));
        Self { id, ..self.clone() }.attempt(engine, name, mode)
    }

    /// # Errors
    /// When the terms make no sense, or the backend does not have what they ask for.
    pub(crate) fn check(&self, engine: &Engine, mode: Mode) -> Result<()> {
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
        if let Some(identity) = &self.identity
            && (identity.is_empty()
                || identity.len() > LONGEST_IDENTITY
                || identity.chars().any(char::is_control))
        {
            let message = format!(
                "on_behalf_of takes 1 to {LONGEST_IDENTITY} bytes without control characters"
            );
            return config(message);
        }
        if self.id.is_some() && self.owner.is_some() {
            return config(
                "a claim with an id of its own is found again by that: leave the owner out".into(),
            );
        }
        if self.id.is_some() && !capability.by_id {
            return Err(unsupported(engine, "claims that are found by their id", |c| c.by_id));
        }
        if mode == (Mode::Permit { of: 0 }) {
            return config("a semaphore needs at least one permit".into());
        }
        if !capability.has(mode) {
            let what = if mode == Mode::Shared { "shared mode" } else { "permits" };
            return Err(unsupported(engine, what, |capability| capability.has(mode)));
        }
        if self.fenced && !capability.fencing {
            return Err(unsupported(engine, "fencing tokens", |capability| capability.fencing));
        }
        if self.bounds.min_hold.is_some() && !capability.min_hold {
            return Err(unsupported(engine, "min_hold", |capability| capability.min_hold));
        }
        Ok(())
    }
}

/// The owner of a claim that was asked for by its id. Named, so that a keeper that asks again shares
/// what it holds, and that the claim takes no part in hand-overs the store hears of afterwards: it
/// could not be found meanwhile.
pub(crate) fn owner_by_id(id: ClaimId) -> Owner {
    Owner::from_id(format!("claim-{id}"))
}

/// The refusal of something this backend does not have, naming those that do.
pub(crate) fn unsupported(engine: &Engine, what: &str, has: impl Fn(&Capability) -> bool) -> Error {
    let shown = engine.backend.to_string();
    let reach = engine.backend.capability().reach;
    let fit = |recipe: &&Recipe| {
        let is_far_enough = recipe.capability.reach != Reach::Process || reach == Reach::Process;
        has(&recipe.capability) && recipe.capability.sound && is_far_enough
    };
    // Another recipe of the same store is nearer than another store.
    let scheme = shown.split(':').next().unwrap_or_default();
    let same = |recipe: &&Recipe| recipe.scheme == scheme;
    let examples = |recipe: &Recipe| recipe.example;
    let mut have: Vec<_> = recipes().iter().filter(fit).filter(same).map(examples).collect();
    if have.is_empty() {
        have = recipes().iter().filter(fit).map(examples).collect();
    }
    let message = match &have[..] {
        [one] => format!("{shown} has no {what}: {one} does"),
        several => format!("{shown} has no {what}: {} do", several.join(" and ")),
    };
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

        /// Asks under an id of the caller's. Asking again under the same id, from any keeper or process,
        /// finds the same claim: one grant, one token, held until any of those who have it gives it
        /// back. For a caller that may have to repeat a request whose answer it never got.
        ///
        /// Make a new id for every claim ([`ClaimId::random`](crate::ClaimId::random)); two jobs
        /// with one id would both hold. With another mode or ttl under the same id it is refused. The
        /// recipes `reentrant` and `set-nx-px` of Redis and memcached do not know the ttl, so keep to it
        /// there; etcd takes the longer of the two. Several names that are asked for under one id have
        /// an id each, made from that and the name.
        ///
        /// What is granted while the caller leaves, or while another part of several names is not to
        /// be had, is not given back but stays for its ttl: another request may have found it by its id
        /// already. Ask again, or [give it back](crate::Keeper::give_back) by its ticket.
        ///
        /// Refused by stores that do not find claims by their ids
        /// ([`Capability::by_id`](crate::backend::Capability::by_id)): those whose claims live and die
        /// with their keeper, and a quorum.
        pub fn claim(mut self, id: crate::claim::ClaimId) -> Self {
            self.terms.id = Some(id);
            self
        }

        /// Whose name is shown to those who list the lock or wait for it, instead of this process's:
        /// for a program that asks for others. At most 200 bytes.
        pub fn on_behalf_of(mut self, identity: &str) -> Self {
            self.terms.identity = Some(identity.into());
            self
        }

        /// Free text shown to those who wait, at most 1000 bytes.
        pub fn note(mut self, note: &str) -> Self {
            self.terms.note = note.into();
            self
        }

        /// Refuses to be acquired where the store gives no fencing token, before any work is done: for
        /// callers that go on to [`Guard::require_token`](crate::Guard::require_token).
        pub fn fenced(mut self) -> Self {
            self.terms.fenced = true;
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
