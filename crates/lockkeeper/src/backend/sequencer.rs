//! What ids are made of: numbers that nobody else gets, small records, and the store's clock.

use super::Name;
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use std::time::SystemTime;

/// The last number of every sequence: what a signed column of 64 bits can have.
pub const LAST_NUMBER: u64 = i64::MAX as u64;

/// How long the value of a record may be, in bytes.
pub const LONGEST_RECORD: usize = 2000;

/// Keeps count, so that no two callers get the same number; and keeps small records, which are
/// changed only by those who know what they say.
///
/// Sequences, records and locks of one name know nothing of each other, and neither expires. The
/// numbers of a sequence begin at one.
#[async_trait]
pub trait Sequencer: Send + Sync {
    /// Reserves numbers in a row, above every number reserved for `name` before, in one atomic step.
    /// There may be gaps: an answer that is lost takes its numbers with it, and whether the request
    /// is repeated is for the store to say.
    ///
    /// # Errors
    /// What the store said. Numbers may have been reserved all the same, for nobody.
    async fn reserve(&self, name: &Name, wish: &Reserve) -> Result<Reserved>;

    /// What the record of this name says, or `None` where there is none. Not older than the last
    /// answered [`write`](Self::write) of any caller.
    async fn read(&self, name: &Name) -> Result<Option<String>>;

    /// Writes the record in one atomic step if it says `expected`, or if it is absent and that is
    /// `None`; returns whether it did. A value has at most [`LONGEST_RECORD`] bytes, and no control
    /// characters.
    ///
    /// # Errors
    /// What the store said. After [`ErrorKind::Unavailable`] the record may have been written:
    /// read it, and put something into the value by which it is known.
    async fn write(&self, name: &Name, value: &str, expected: Option<&str>) -> Result<bool>;

    /// All records whose names start with `prefix`, in order of name.
    async fn list(&self, prefix: &str) -> Result<Vec<(Name, String)>>;

    /// What the store's own clock says, or `None` where the store does not tell.
    async fn time(&self) -> Result<Option<SystemTime>>;

    /// Numbers of the database's own auto-increment column, as many as asked for and in ascending
    /// order, or `None` where the store has no such thing. One column serves all callers.
    async fn auto_increment(&self, count: u32) -> Result<Option<Vec<u64>>> {
        let _ = count;
        Ok(None)
    }
}

/// What is asked of [`Sequencer::reserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reserve {
    /// How many numbers; at least one.
    pub count: u32,
    /// The first is not below this.
    pub floor: u64,
    /// The last is not above this: where it would be, nothing is reserved.
    pub ceiling: u64,
    /// Whether the sequence must be there already. Where it is not, nothing is reserved: a store that
    /// lost its count must not begin again while those who had numbers of before go on.
    pub existing: bool,
}

impl Reserve {
    /// So many, from wherever the sequence is.
    pub fn new(count: u32) -> Self {
        Self { count: count.max(1), floor: 1, ceiling: LAST_NUMBER, existing: false }
    }

    /// Not below `floor`.
    #[must_use]
    pub fn from(self, floor: u64) -> Self {
        Self { floor: floor.max(1), ..self }
    }

    /// Not above `ceiling`.
    #[must_use]
    pub fn up_to(self, ceiling: u64) -> Self {
        Self { ceiling: ceiling.min(LAST_NUMBER), ..self }
    }

    /// Only of a sequence that is there.
    #[must_use]
    pub fn of_existing(self) -> Self {
        Self { existing: true, ..self }
    }

    /// The least that the last number can be: what a sequence is moved on to whose count is behind
    /// the floor. `None` where the floor leaves no room below the ceiling.
    pub fn least(&self) -> Option<u64> {
        let least = self.floor.max(1).checked_add(u64::from(self.count.max(1)) - 1)?;
        Some(least).filter(|least| *least <= self.ceiling.min(LAST_NUMBER))
    }
}

/// What became of [`Sequencer::reserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reserved {
    /// The first of the numbers.
    From(u64),
    /// Nothing: they would have passed the ceiling, since the sequence is at this number already, or
    /// since the floor leaves no room.
    Beyond(u64),
    /// Nothing: there is no such sequence, and it was not to be begun.
    Missing,
}

impl Reserved {
    /// What a sequence whose last number is `last`, if it was begun, makes of `wish`: the rule that
    /// every store follows, for those that count in the client and write on condition.
    pub fn of(last: Option<u64>, wish: &Reserve) -> Self {
        if last.is_none() && wish.existing {
            return Self::Missing;
        }
        let last = last.unwrap_or(0);
        let count = u64::from(wish.count.max(1));
        let first = last.saturating_add(1).max(wish.floor);
        match first.checked_add(count - 1).filter(|end| *end <= wish.ceiling.min(LAST_NUMBER)) {
            Some(_) => Self::From(first),
            None => Self::Beyond(last),
        }
    }

    /// The first number, where the only reason for having none is that the sequence is at its end.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] at the end of the sequence.
    pub(crate) fn first(self) -> Result<u64> {
        match self {
            Self::From(first) => Ok(first),
            _ => Err(Error::new(ErrorKind::Config, "a sequence ends below 2^63")),
        }
    }
}

/// Whether a value can be the value of a record.
pub(crate) fn check_record(value: &str) -> Result<()> {
    if value.len() > LONGEST_RECORD || value.chars().any(char::is_control) {
        let message =
            format!("a record has at most {LONGEST_RECORD} bytes and no control characters");
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_and_keep_to_floor_and_ceiling() {
        let wish = Reserve::new(3);
        assert_eq!(Reserved::of(None, &wish), Reserved::From(1));
        assert_eq!(Reserved::of(Some(7), &wish), Reserved::From(8));
        assert_eq!(Reserved::of(Some(7), &wish.from(100)), Reserved::From(100));
        assert_eq!(Reserved::of(Some(200), &wish.from(100)), Reserved::From(201));
        assert_eq!(Reserved::of(Some(7), &wish.up_to(10)), Reserved::From(8));
        assert_eq!(Reserved::of(Some(8), &wish.up_to(10)), Reserved::Beyond(8));
        assert_eq!(Reserved::of(None, &wish.of_existing()), Reserved::Missing);
        assert_eq!(Reserved::of(Some(0), &wish.of_existing()), Reserved::From(1));
    }

    #[test]
    fn a_sequence_ends_and_does_not_begin_again() {
        let one = Reserve::new(1);
        assert_eq!(Reserved::of(Some(LAST_NUMBER - 1), &one), Reserved::From(LAST_NUMBER));
        assert_eq!(Reserved::of(Some(LAST_NUMBER), &one), Reserved::Beyond(LAST_NUMBER));
        assert_eq!(Reserved::of(Some(u64::MAX), &one), Reserved::Beyond(u64::MAX));
        assert_eq!(one.from(u64::MAX).least(), None);
        assert_eq!(Reserve::new(2).from(LAST_NUMBER).least(), None);
        assert_eq!(Reserve::new(2).from(LAST_NUMBER - 1).least(), Some(LAST_NUMBER));
    }
}
