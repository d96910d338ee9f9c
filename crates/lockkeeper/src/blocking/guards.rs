//! What threads hold.
//!
//! No `Deref` to the async guards: their futures do nothing here but be polled by nobody.

use super::runtime::Runtime;
use crate::claim::{FencingToken, Mode, Owner};
use crate::error::Result;
use crate::guard::lost_error;
use crate::loss::LossReason;
use crate::name::Name;
use crate::ticket::Ticket;
use std::sync::Arc;
use std::time::Duration;

/// What every guard has, passed on to the async one inside.
macro_rules! passed_on {
    ($guard:ident, $ticket:ty) => {
        pub(super) fn over(inner: crate::$guard, runtime: Arc<Runtime>) -> Self {
            Self { inner, runtime }
        }

        /// Why it was lost; `None` while it is held.
        pub fn lost_reason(&self) -> Option<LossReason> {
            self.inner.lost_reason()
        }

        /// Whether it is valid at this moment, by our own clock.
        pub fn is_held(&self) -> bool {
            self.inner.is_held()
        }

        /// How long it is valid if no renewal succeeds from now on.
        pub fn remaining(&self) -> Duration {
            self.inner.remaining()
        }

        /// Whether the store could not be reached when it last should have been; see
        /// [`Guard::is_in_jeopardy`](crate::Guard::is_in_jeopardy).
        pub fn is_in_jeopardy(&self) -> bool {
            self.inner.is_in_jeopardy()
        }

        /// How long nobody else can be granted it; see
        /// [`Guard::until_others`](crate::Guard::until_others).
        pub fn until_others(&self) -> Duration {
            self.inner.until_others()
        }

        /// Says that no work was done; see
        /// [`Guard::cancel_min_hold`](crate::Guard::cancel_min_hold).
        pub fn cancel_min_hold(&mut self) {
            self.inner.cancel_min_hold();
        }

        /// Gives it back and waits until the store has it.
        ///
        /// # Errors
        /// As [`Guard::release`](crate::Guard::release).
        pub fn release(self) -> Result<()> {
            self.runtime.block_on(self.inner.release())
        }

        /// Stops renewing without giving it back.
        pub fn detach(self) {
            self.inner.detach();
        }

        /// Stops renewing, and returns what keeps it from now on.
        ///
        /// # Errors
        /// As [`Guard::hand_out`](crate::Guard::hand_out).
        pub fn hand_out(self) -> Result<$ticket> {
            self.runtime.block_on(self.inner.hand_out())
        }
    };
}

/// A held claim; see [`Guard`](crate::Guard).
#[derive(Debug)]
#[must_use = "if unused the claim is released at once"]
pub struct Guard {
    // Dropped before the runtime that carries out its release.
    inner: crate::Guard,
    runtime: Arc<Runtime>,
}

impl Guard {
    passed_on!(Guard, Ticket);

    /// The name that is held.
    pub fn name(&self) -> &Name {
        self.inner.name()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// Whose claims on this name count as one with this.
    pub fn owner(&self) -> &Owner {
        self.inner.owner()
    }

    /// The fencing token; see [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> Option<FencingToken> {
        self.inner.token()
    }

    /// The fencing token, for a caller that cannot do without; see
    /// [`Guard::require_token`](crate::Guard::require_token).
    ///
    /// # Errors
    /// As there.
    pub fn require_token(&self) -> Result<FencingToken> {
        self.inner.require_token()
    }

    /// `Ok` while the claim is held: ask between the steps of long work.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
    pub fn check(&self) -> Result<()> {
        match self.inner.is_held() {
            true => Ok(()),
            false => Err(lost_error(self.inner.name(), self.inner.lost_reason())),
        }
    }

    /// Another guard of the same claim.
    pub fn share(&self) -> Guard {
        Guard { inner: self.inner.share(), runtime: self.runtime.clone() }
    }
}

/// Several held claims; see [`MultiGuard`](crate::MultiGuard).
#[derive(Debug)]
#[must_use = "if unused the claims are released at once"]
pub struct MultiGuard {
    inner: crate::MultiGuard,
    runtime: Arc<Runtime>,
}

impl MultiGuard {
    passed_on!(MultiGuard, Vec<Ticket>);

    /// The names, in the order they were taken.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.inner.names()
    }

    /// The fencing token of `name`.
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.inner.token(name)
    }

    /// `Ok` while all of them are held: ask between the steps of long work.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
    pub fn check(&self) -> Result<()> {
        self.inner.check()
    }
}

/// The office of leader; see [`Leadership`](crate::Leadership).
#[derive(Debug)]
#[must_use = "if unused the leader resigns at once"]
pub struct Leadership {
    inner: crate::Leadership,
    runtime: Arc<Runtime>,
}

impl Leadership {
    pub(super) fn over(inner: crate::Leadership, runtime: Arc<Runtime>) -> Self {
        Self { inner, runtime }
    }

    /// The fencing token of this term of office; see
    /// [`Leadership::term`](crate::Leadership::term).
    pub fn term(&self) -> FencingToken {
        self.inner.term()
    }

    /// `Ok` while in office: ask between the steps of long work.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
    pub fn check(&self) -> Result<()> {
        let guard = self.inner.guard();
        match guard.is_held() {
            true => Ok(()),
            false => Err(lost_error(guard.name(), guard.lost_reason())),
        }
    }

    /// Whether this is the leader at this moment, by our own clock.
    pub fn is_leader(&self) -> bool {
        self.inner.is_leader()
    }

    /// The same as [`is_leader`](Self::is_leader).
    pub fn is_held(&self) -> bool {
        self.inner.guard().is_held()
    }

    /// Why the office was lost; `None` while it is held.
    pub fn lost_reason(&self) -> Option<LossReason> {
        self.inner.guard().lost_reason()
    }

    /// How long it is valid if no renewal succeeds from now on.
    pub fn remaining(&self) -> Duration {
        self.inner.guard().remaining()
    }

    /// Leaves the office to a ticket.
    ///
    /// # Errors
    /// As [`Guard::hand_out`](crate::Guard::hand_out).
    pub fn hand_out(self) -> Result<Ticket> {
        self.runtime.block_on(self.inner.hand_out())
    }

    /// Steps down and waits until the store knows.
    ///
    /// # Errors
    /// As [`Leadership::resign`](crate::Leadership::resign).
    pub fn resign(self) -> Result<()> {
        self.runtime.block_on(self.inner.resign())
    }
}
