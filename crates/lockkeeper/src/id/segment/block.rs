//! Numbers for one thread.

use super::Segment;
use crate::error::Result;
use crate::id::value::Id;

/// A part of a range that one thread has for itself; see [`Segment::block`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// let ids = keeper.ids("photos").segment().await?;
/// let mut mine = ids.block(64);
/// assert!(mine.next().await? < mine.next().await?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Block {
    of: Segment,
    size: u64,
    next: u64,
    end: u64,
}

impl Block {
    pub(super) fn new(of: Segment, size: u32) -> Self {
        Self { of, size: u64::from(size.max(1)), next: 0, end: 0 }
    }

    /// The next number, if there is one without waiting.
    ///
    /// # Errors
    /// As [`Generator::try_next`](crate::id::Generator::try_next).
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Id>> {
        if self.next < self.end {
            let id = Id::new(self.next);
            self.next += 1;
            return Ok(Some(id));
        }
        self.more()
    }

    #[cold]
    fn more(&mut self) -> Result<Option<Id>> {
        let taken = self.of.take(self.size)?;
        Ok(taken.map(|piece| self.begin(piece)))
    }

    /// The next number.
    ///
    /// # Errors
    /// As [`Generator::next`](crate::id::Generator::next).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Id> {
        match self.try_next()? {
            Some(id) => Ok(id),
            None => {
                let piece = self.of.wait(self.size).await?;
                Ok(self.begin(piece))
            }
        }
    }

    fn begin(&mut self, (first, count): (u64, u64)) -> Id {
        (self.next, self.end) = (first + 1, first + count);
        Id::new(first)
    }
}
