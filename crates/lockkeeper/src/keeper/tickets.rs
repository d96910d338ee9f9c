//! Claims that are kept by their tickets, by whichever process they were made.

use super::Keeper;
use crate::backend::{Release, Standing};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{Guard, lost_error};
use crate::hold::validity;
use crate::meter::Operation;
use crate::terms::Terms;
use crate::ticket::Ticket;
use std::time::Duration;

impl Keeper {
    /// Renews the claim once, by the ticket's ttl, and returns for how long it is valid from now on,
    /// counted from before the store was asked.
    ///
    /// Until then it is the caller's to keep it again or to stop its work.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], with the reason, when the store does not have the
    /// claim any more, or never had it: a ticket of another store.
    /// [`Unavailable`](ErrorKind::Unavailable) when the store did not answer: that neither extends
    /// nor ends the claim, so repeat it until what was left is over.
    /// [`Unsupported`](ErrorKind::Unsupported) where claims live and die with their keeper.
    ///
    /// # Cancel safety
    /// Cancel safe: the claim may be renewed or not.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    ///
    /// let keeper = lockkeeper::connect("memory:").await?;
    /// let ticket = keeper.lock("orders/42").acquire().await?.hand_out().await?;
    /// let longer = ticket.with_ttl(Duration::from_secs(600));
    /// assert!(keeper.keep(&longer).await? > Duration::from_secs(500));
    /// keeper.give_back(&longer).await?;
    /// assert!(keeper.keep(&longer).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn keep(&self, ticket: &Ticket) -> Result<Duration> {
        self.check_ttl(ticket)?;
        let ticket = ticket.clone();
        self.ask(|engine| async move {
            let mut lease = engine.lease_of(&ticket)?;
            let sent = Moment::now();
            let valid_for = match engine.counted(Operation::Renew, lease.renew()).await? {
                Standing::Held => ticket.ttl,
                Standing::HeldFor(span) => span.min(ticket.ttl),
                Standing::Lost(reason) => return Err(lost_error(&ticket.name, Some(reason))),
            };
            match (sent + validity(valid_for)).remaining() {
                Duration::ZERO => Err(engine.silent(Moment::now().since(sent))),
                left => Ok(left),
            }
        })
        .await
    }

    /// Gives the claim back, and waits until the store has it. The next one gets it at once.
    ///
    /// # Errors
    /// As [`keep`](Self::keep). When the store did not answer, repeat it: giving back twice does no
    /// harm, and leaves the next holder alone.
    ///
    /// # Cancel safety
    /// Cancel safe: once called, it is done in the background.
    pub async fn give_back(&self, ticket: &Ticket) -> Result<()> {
        let ticket = ticket.clone();
        self.ask(|engine| async move {
            let (mut lease, now) = (engine.lease_of(&ticket)?, Release::now());
            let released = engine.counted(Operation::Release, lease.release(&now)).await;
            released.map_err(|error| match error.kind() {
                ErrorKind::Lost => {
                    let message = format!("the lock {:?} was lost: {error}", ticket.name);
                    Error::new(ErrorKind::Lost, message)
                }
                _ => error,
            })
        })
        .await
    }

    /// Goes on with the claim here: a guard like any other, renewed in the background, with the ticket's
    /// token and a signal when the claim is lost. The ticket stays good as long as the claim is held.
    ///
    /// A process that had taken it over before is not told, and goes on renewing: hand the ticket to one
    /// only.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    ///
    /// # Cancel safety
    /// Cancel safe: the claim may be renewed once, and is not given back.
    pub async fn take_over(&self, ticket: &Ticket) -> Result<Guard> {
        let ticket = ticket.clone();
        let taken = self.ask(|engine| async move { engine.take_over(ticket).await }).await?;
        Ok(taken.reach_caller())
    }

    /// # Errors
    /// `Config` for a ttl that the store could not keep to.
    fn check_ttl(&self, ticket: &Ticket) -> Result<()> {
        Terms::of_ticket(ticket).check(&self.engine, ticket.mode)
    }
}
