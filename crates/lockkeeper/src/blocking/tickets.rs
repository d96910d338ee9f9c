//! Claims that threads keep by their tickets.

use super::{Guard, Keeper};
use crate::error::Result;
use crate::ticket::Ticket;
use std::time::Duration;

impl Keeper {
    /// Renews the claim once; see [`Keeper::keep`](crate::Keeper::keep).
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// let keeper = lockkeeper::blocking::connect("memory:")?;
    /// let ticket = keeper.lock("orders/42").acquire()?.hand_out()?;
    /// assert!(!keeper.keep(&ticket)?.is_zero());
    /// keeper.take_over(&ticket)?.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn keep(&self, ticket: &Ticket) -> Result<Duration> {
        self.runtime.block_on(self.inner.keep(ticket))
    }

    /// Gives the claim back; see [`Keeper::give_back`](crate::Keeper::give_back).
    ///
    /// # Errors
    /// As there.
    pub fn give_back(&self, ticket: &Ticket) -> Result<()> {
        self.runtime.block_on(self.inner.give_back(ticket))
    }

    /// Goes on with the claim here; see [`Keeper::take_over`](crate::Keeper::take_over).
    ///
    /// # Errors
    /// As there.
    pub fn take_over(&self, ticket: &Ticket) -> Result<Guard> {
        let inner = self.runtime.block_on(self.inner.take_over(ticket))?;
        Ok(Guard::over(inner, self.runtime.clone()))
    }
}
