//! Numbers that grow by one for all: each call is a request.

use super::counter::Counter;
use super::generator::Generator;
use super::order::{Health, Order};
use super::value::Id;
use crate::backend::LAST_NUMBER;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Numbers of one key that grow strictly, whoever asks: each call is one request to the store, and so is
/// a batch. Gaps where an answer was lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::id::Generator;
///
/// let keeper = lockkeeper::connect("memory:").await?;
/// let ids = keeper.ids("user/42").sequence().await?;
/// assert_eq!(ids.next().await?.get(), 1);
/// assert_eq!(ids.next_n(3).await?.last().unwrap().get(), 4);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Sequence {
    counter: Arc<Counter>,
}

impl Sequence {
    pub(crate) fn new(counter: Counter) -> Self {
        Self { counter: Arc::new(counter) }
    }
}

impl Generator for Sequence {
    type Id = Id;

    /// Always `None`: each number is asked for.
    fn try_next(&self) -> Result<Option<Id>> {
        Ok(None)
    }

    async fn next(&self) -> Result<Id> {
        let first = self.counter.reserve(1, 1, LAST_NUMBER).await?;
        first.map(Id::new).ok_or_else(used_up)
    }

    async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.counter.reserve(count, 1, LAST_NUMBER).await?.ok_or_else(used_up)?;
        Ok((first..first + u64::from(count)).map(Id::new).collect())
    }

    fn order(&self) -> Order {
        Order::Strict
    }

    fn health(&self) -> Health {
        Health { reservations: self.counter.reservations(), left: Some(0), ..Health::default() }
    }
}

pub(crate) fn used_up() -> Error {
    Error::new(ErrorKind::Exhausted, "the numbers of this key are used up: take another key")
        .lasting()
}
