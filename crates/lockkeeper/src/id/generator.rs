//! What every kind of ids has in common.

use super::order::{Health, Order};
use crate::blocking::block_on_within;
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::time::Duration;

/// Gives ids, of which no two are the same, whoever else gives some.
///
/// Where an id cannot be given safely there is an error: no generator guesses, and none sleeps while it
/// holds something that others need.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::id::{Generator, Layout};
///
/// let keeper = lockkeeper::connect("memory:").await?;
/// let ids = keeper.ids("orders").snowflake(Layout::default()).await?;
/// let (one, two) = (ids.next().await?, ids.next().await?);
/// assert!(one < two);
/// # Ok(()) }
/// ```
pub trait Generator: fmt::Debug + Send + Sync {
    /// What it gives.
    type Id: Copy + fmt::Debug + fmt::Display + Send + 'static;

    /// The next id if there is one at this moment, without waiting and without asking the store. `None`
    /// means that [`next`](Self::next) would wait.
    ///
    /// # Errors
    /// Where waiting is not enough, as [`next`](Self::next).
    fn try_next(&self) -> Result<Option<Self::Id>>;

    /// The next id.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where the store is needed and does not answer;
    /// [`ErrorKind::Exhausted`] where the key has no more ids; else what the store said.
    ///
    /// # Cancel safety
    /// Cancel safe: an id that was given to no one is a gap.
    fn next(&self) -> impl Future<Output = Result<Self::Id>> + Send;

    /// The next `count` ids, in ascending order where the kind has one, by one step or as few as
    /// possible.
    ///
    /// # Errors
    /// As [`next`](Self::next); ids that were given by then are a gap.
    ///
    /// # Cancel safety
    /// As [`next`](Self::next).
    fn next_n(&self, count: u32) -> impl Future<Output = Result<Vec<Self::Id>>> + Send;

    /// As [`next`](Self::next), for a thread that may block.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`ErrorKind::TimedOut`] when there is none within `limit`.
    fn next_blocking(&self, limit: Duration) -> Result<Self::Id> {
        if let Some(id) = self.try_next()? {
            return Ok(id);
        }
        block_on_within(self.next(), limit).unwrap_or_else(|| {
            Err(Error::new(ErrorKind::TimedOut, format!("there was no id within {limit:?}")))
        })
    }

    /// In which order ids come.
    fn order(&self) -> Order;

    /// How it is doing.
    fn health(&self) -> Health;
}
