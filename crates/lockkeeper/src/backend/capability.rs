//! What a backend promises, in a value that can be compared and shown.

#[cfg(doc)]
use super::Backend;
use super::Mode;
use std::fmt;
use std::time::Duration;

/// How far a lock reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Every process that can reach the store.
    Network,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Process => "process",
            Reach::Machine => "machine",
            Reach::Network => "network",
        })
    }
}

/// What a backend promises. What it does not promise it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// How far a lock reaches.
    pub reach: Reach,
    /// [`Mode::Shared`].
    pub shared: bool,
    /// [`Mode::Permit`].
    pub permits: bool,
    /// Claims are granted in the order they were made.
    pub fair: bool,
    /// Grants carry a token that never goes back.
    pub fencing: bool,
    /// An owner may enter again from another process or keeper.
    pub reentrant: bool,
    /// A claim can stay for a while although it was given back: `min_hold`.
    pub min_hold: bool,
    /// Waiters are woken; where false, they poll.
    pub notified: bool,
    /// Claims and tokens survive a restart of the store.
    pub durable: bool,
    /// Claims live in a session that the keeper has with the store. A ttl longer than what the
    /// session is good for is cut to that; a process that dies frees its claims when the store
    /// ends the session, whatever their ttl; one that lives frees each of them at its ttl.
    pub session: bool,
    /// A process that dies frees its claims at once, long before their ttl: the store sees the end
    /// of its connection.
    pub frees_dead: bool,
    /// Who holds and who waits can be told, and a claim be broken: [`Backend::inspector`].
    pub inspects: bool,
    /// Numbers can be reserved: [`Backend::sequencer`].
    pub sequences: bool,
    /// It has an auto-increment column of its own: [`Sequencer::auto_increment`](super::Sequencer).
    pub auto_increment: bool,
    /// Several names can be taken in one step: [`Backend::multi`].
    pub atomic_multi: bool,
    /// A claim can be kept and given back by its id, from another keeper or process:
    /// [`Backend::lease_of`].
    pub portable: bool,
    /// A claim can be asked for by an id of the caller's, and is found by that from another keeper or
    /// process: [`Claim::by_id`](super::Claim::by_id).
    pub by_id: bool,
    /// The shortest ttl that it takes: 20 ms, or more where the store's clock is coarser than that.
    pub shortest_ttl: Duration,
    /// It keeps what it promises. Recipes that do not are there to be seen failing, and must not
    /// guard anything.
    pub sound: bool,
}

impl Capability {
    /// The least there is: exclusive claims that are polled for.
    pub const fn least(reach: Reach) -> Self {
        Self {
            reach,
            shared: false,
            permits: false,
            fair: false,
            fencing: false,
            reentrant: false,
            min_hold: false,
            notified: false,
            durable: false,
            session: false,
            frees_dead: false,
            inspects: false,
            sequences: false,
            auto_increment: false,
            atomic_multi: false,
            portable: false,
            by_id: false,
            shortest_ttl: Duration::from_millis(20),
            sound: true,
        }
    }

    /// The same where a session that ends frees its locks at once, if it does: a process that dies
    /// is not waited for, nor is one whose connection was cut, which may believe for a while.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) const fn freed_on_disconnect(self, freed: bool) -> Self {
        Self { frees_dead: freed, sound: self.sound && !freed, ..self }
    }

    /// Whether claims of this mode can be made.
    pub fn has(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => true,
            Mode::Shared => self.shared,
            Mode::Permit { .. } => self.permits,
        }
    }
}
