//! Ids of a key whose kind is known only when it is opened.

use super::auto_increment::AutoIncrement;
use super::calendar;
use super::dated::{DateFormat, Dated};
use super::generator::Generator;
use super::layout::Layout;
use super::leased::Leased;
use super::order::{Health, Order};
use super::segment::Segment;
use super::sequence::Sequence;
use super::striped;
use super::terms::Kind;
use super::value::Id;
use crate::error::{Error, ErrorKind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Ids by the clock, in bits; see [`Layout`].
pub type Snowflake = Leased<Layout>;

/// Dated ids by the clock, with a leased worker number; see [`Digits::Worker19`](super::Digits).
pub type DatedLocal = Leased<DateFormat>;

/// Ids of whatever kind a key has.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::id::{Generator, Kind};
///
/// let keeper = lockkeeper::connect("memory:").await?;
/// keeper.ids("orders").sequence().await?.next().await?;
/// // Somewhere else, not knowing of what kind they are:
/// let ids = keeper.ids("orders").open().await?;
/// assert_eq!(ids.kind(), Kind::Sequence);
/// assert_eq!(ids.next().await?.get(), 2);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Ids {
    /// [`Kind::Sequence`].
    Sequence(Sequence),
    /// [`Kind::Segment`].
    Segment(Segment),
    /// [`Kind::AutoIncrement`].
    AutoIncrement(AutoIncrement),
    /// [`Kind::Snowflake`].
    Snowflake(Snowflake),
    /// [`Kind::Dated`] through the store.
    Dated(Dated),
    /// [`Kind::Dated`] with a leased worker number.
    DatedLocal(DatedLocal),
}

/// What an id tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The number.
    pub id: Id,
    /// When it was made, as far as it tells.
    pub time: Option<SystemTime>,
    /// By which worker; of striped ids by which of the stores, counted from zero.
    pub worker: Option<u32>,
    /// The number within its time and worker.
    pub sequence: Option<u64>,
}

macro_rules! each {
    ($self:ident, $ids:ident => $does:expr) => {
        match $self {
            Self::Sequence($ids) => $does,
            Self::Segment($ids) => $does,
            Self::AutoIncrement($ids) => $does,
            Self::Snowflake($ids) => $does,
            Self::Dated($ids) => $does,
            Self::DatedLocal($ids) => $does,
        }
    };
}

impl Ids {
    /// What they are.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Sequence(_) => Kind::Sequence,
            Self::Segment(_) => Kind::Segment,
            Self::AutoIncrement(_) => Kind::AutoIncrement,
            Self::Snowflake(ids) => Kind::Snowflake(*ids.scale()),
            Self::Dated(ids) => Kind::Dated(ids.format().clone()),
            Self::DatedLocal(ids) => Kind::Dated(ids.scale().clone()),
        }
    }

    /// An id as people see it: with prefix and check digit, where the kind has them.
    pub fn text(&self, id: Id) -> String {
        match self {
            Self::Dated(ids) => ids.format().text(id),
            Self::DatedLocal(ids) => ids.scale().text(id),
            _ => id.to_string(),
        }
    }

    /// Gives back what they have in the store beside their count: a worker number.
    ///
    /// # Errors
    /// What the store said; the number is then free later.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn close(&self) -> Result<()> {
        match self {
            Self::Snowflake(ids) => ids.close().await,
            Self::DatedLocal(ids) => ids.close().await,
            _ => Ok(()),
        }
    }
}

impl Generator for Ids {
    type Id = Id;

    fn try_next(&self) -> Result<Option<Id>> {
        each!(self, ids => ids.try_next())
    }

    async fn next(&self) -> Result<Id> {
        each!(self, ids => ids.next().await)
    }

    async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        each!(self, ids => ids.next_n(count).await)
    }

    fn order(&self) -> Order {
        each!(self, ids => ids.order())
    }

    fn health(&self) -> Health {
        each!(self, ids => ids.health())
    }
}

impl Kind {
    /// What an id of this kind tells of itself. No store is asked.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a text that is no id of this kind.
    ///
    /// ```
    /// use lockkeeper::id::{Kind, Layout};
    ///
    /// let told = Kind::Snowflake(Layout::default()).inspect("4194304")?;
    /// assert_eq!((told.worker, told.sequence), (Some(0), Some(0)));
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn inspect(&self, text: &str) -> Result<Inspection> {
        let at = |millis: u64| Some(UNIX_EPOCH + Duration::from_millis(millis));
        match self {
            Self::Snowflake(layout) => {
                let id: Id = text.parse()?;
                let (time, worker, sequence) = layout.parts(id).ok_or_else(|| {
                    Error::new(ErrorKind::Config, format!("{text} is no id of the layout {layout}"))
                })?;
                let time = at(time + layout.epoch_ms());
                Ok(Inspection { id, time, worker: Some(worker), sequence: Some(sequence) })
            }
            Self::Dated(format) => {
                let id = format.parse(text)?;
                let parts = format.parts(id);
                let worker = parts.map(|(_, worker, _)| worker);
                Ok(Inspection {
                    id,
                    time: parts.and_then(|(seconds, ..)| at(seconds * 1000)),
                    worker: worker.filter(|_| format.digits().workers() > 1),
                    sequence: parts.map(|(.., sequence)| sequence),
                })
            }
            Self::Striped { of, .. } => {
                let id: Id = text.parse()?;
                let stripe = id.get() % u64::from((*of).max(1));
                Ok(Inspection {
                    id,
                    time: Some(UNIX_EPOCH + Duration::from_micros(striped::EPOCH + id.get())),
                    worker: u32::try_from(stripe).ok().filter(|_| *of > 1),
                    sequence: None,
                })
            }
            _ => {
                let id: Id = text.parse()?;
                Ok(Inspection { id, time: None, worker: None, sequence: Some(id.get()) })
            }
        }
    }

    /// The smallest and the largest id of a day that is written as `2026-11-15`: bounds for a query. The
    /// day is that of UTC, and for dated ids that of their own offset.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a kind without time; [`ErrorKind::Config`] for what is no day, or
    /// a day of which there are no ids.
    pub fn range(&self, day: &str) -> Result<(Id, Id)> {
        let first = calendar::day(day)?;
        let none = || Error::new(ErrorKind::Config, format!("there are no ids of {day} in {self}"));
        match self {
            Self::Snowflake(layout) => {
                let from = UNIX_EPOCH + Duration::from_secs(first);
                let until = from + Duration::from_secs(calendar::SECONDS_PER_DAY);
                layout.range(from, until).ok_or_else(none)
            }
            Self::Dated(format) => {
                let (low, high) = format.range(first);
                format.parts(low).and(format.parts(high)).map(|_| (low, high)).ok_or_else(none)
            }
            Self::Striped { .. } => {
                let micros = |seconds: u64| (seconds * 1_000_000).checked_sub(striped::EPOCH);
                let low = micros(first).ok_or_else(none)?;
                let high = low + calendar::SECONDS_PER_DAY * 1_000_000 - 1;
                Ok((Id::new(low), Id::new(high)))
            }
            _ => {
                let message = format!("ids of the kind {} tell no time", self.word());
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}
