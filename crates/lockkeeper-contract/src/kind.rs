//! The three ways to ask for a lock with one holder at a time.

use lockkeeper::backend::Capability;
use lockkeeper::{Keeper, Lock};

/// A plain lock, a semaphore with one permit and the write side of a read-write lock must all
/// behave the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    OnePermit,
    WriteSide,
}

impl Kind {
    pub(crate) fn all(capability: &Capability) -> Vec<Self> {
        let mut kinds = vec![Self::Lock, Self::WriteSide];
        kinds.extend(capability.permits.then_some(Self::OnePermit));
        kinds
    }

    pub(crate) fn of(self, keeper: &Keeper, name: &str) -> Lock {
        match self {
            Self::Lock => keeper.lock(name),
            Self::OnePermit => keeper.semaphore(name, 1),
            Self::WriteSide => keeper.rw_lock(name).write(),
        }
    }

    /// The suffix for the name of a case.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Lock => "",
            Self::OnePermit => "_with_one_permit",
            Self::WriteSide => "_with_the_write_side",
        }
    }

    /// The mode in the taker's syntax.
    #[cfg_attr(not(unix), allow(dead_code, reason = "processes are commanded on unix only"))]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lock | Self::WriteSide => "exclusive",
            Self::OnePermit => "permit:1",
        }
    }
}
