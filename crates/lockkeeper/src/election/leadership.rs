//! The office of leader, held.

use crate::claim::FencingToken;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::loss::LossReason;
use crate::lost::Lost;
use crate::ticket::Ticket;

/// The office of leader, held.
///
/// Dropping it resigns in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let leadership = keeper.election("scheduler").campaign().await?;
/// let term = leadership.term();
/// let orders = leadership.run(async { vec![(term, "start the backup")] }).await?; // stops on loss
/// assert!(leadership.is_leader() && orders.len() == 1);
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "if unused the leader resigns at once"]
pub struct Leadership {
    guard: Guard,
    term: FencingToken,
}

impl Leadership {
    pub(super) fn of(guard: Guard) -> Result<Self> {
        // Elections without tokens are refused before.
        let missing = || Error::new(ErrorKind::Store, "the store gave no token for this office");
        let term = guard.token().ok_or_else(missing)?;
        Ok(Self { guard, term })
    }

    /// The number of this reign: larger than that of every leader before. Give it to followers
    /// with every order, so that they refuse a leader of the past.
    pub fn term(&self) -> FencingToken {
        self.term
    }

    /// Whether this is the leader at this moment, by our own clock.
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// Resolves when the office is lost, before anyone else can be elected; see [`Guard::lost`].
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// Why the office was lost; `None` while it is held.
    pub fn lost_reason(&self) -> Option<LossReason> {
        self.guard.lost_reason()
    }

    /// Runs `work`, and drops it half-way if the office is lost; see [`Guard::run`].
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], with the reason, when the office was lost before `work` was done.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the office stays held.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.guard.run(work).await
    }

    /// The guard behind it: `remaining`, `until_others` and the rest.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Leaves the office to a ticket; see [`Guard::hand_out`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn hand_out(self) -> Result<Ticket> {
        self.guard.hand_out().await
    }

    /// Steps down and waits until the store knows.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// Cancel safe: once called, it goes on in the background.
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }
}
