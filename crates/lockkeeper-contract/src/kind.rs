//! The three spellings of a lock that one holds at a time.

use lockkeeper::backend::Capability;
use lockkeeper::{Keeper, Lock};

/// What holds for a lock holds for one permit of one and for the write side too.
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

    /// What is added to the name of a case.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Lock => "",
            Self::OnePermit => "_with_one_permit",
            Self::WriteSide => "_with_the_write_side",
        }
    }

    /// The mode as the taker spells it.
    #[cfg_attr(not(unix), allow(dead_code, reason = "processes are commanded on unix only"))]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lock | Self::WriteSide => "exclusive",
            Self::OnePermit => "permit:1",
        }
    }
}
