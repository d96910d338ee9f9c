//! The kinds of ids that a run can be about, and how they are opened.

use clap::ValueEnum;
use lockkeeper::id::{
    DateFormat, Digits, Generator, Id, IdKey, Ids, Kind, Layout, Lease, Order, Striped,
};
use lockkeeper::{Keeper, Result};
use std::time::Duration;

/// The key that the ids of a run have.
pub(crate) const KEY: &str = "lab/ids";

/// A kind of ids, as asked for on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// Strictly increasing numbers, a request each.
    Sequence,
    /// Numbers out of reserved ranges.
    Segment,
    /// The database's own column.
    AutoIncrement,
    /// Numbers of two stores, of which one may fail.
    Striped,
    /// Time, worker, sequence in bits.
    Snowflake,
    /// The same with sixteen workers only: a number that is taken again is taken soon.
    SnowflakeNarrow,
    /// A day that is read at a glance, strictly increasing.
    Dated,
    /// The same with a leased worker number.
    DatedLocal,
}

impl Scheme {
    /// Its name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Segment => "segment",
            Self::AutoIncrement => "auto-increment",
            Self::Striped => "striped",
            Self::Snowflake => "snowflake",
            Self::SnowflakeNarrow => "snowflake-narrow",
            Self::Dated => "dated",
            Self::DatedLocal => "dated-local",
        }
    }

    /// What the store has on record of it; `None` for ids of several stores.
    pub(crate) fn kind(self) -> Option<Kind> {
        Some(match self {
            Self::Sequence => Kind::Sequence,
            Self::Segment => Kind::Segment,
            Self::AutoIncrement => Kind::AutoIncrement,
            Self::Striped => return None,
            Self::Snowflake => Kind::Snowflake(Layout::default()),
            Self::SnowflakeNarrow => Kind::Snowflake(Layout::new(41, 4, 12).unwrap_or_default()),
            Self::Dated => Kind::Dated(DateFormat::new(Digits::Second19)),
            Self::DatedLocal => Kind::Dated(DateFormat::new(Digits::Worker19)),
        })
    }

    /// Whether ids are given without asking the store for each.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, Self::Segment | Self::Snowflake | Self::SnowflakeNarrow | Self::DatedLocal)
    }

    /// Whether a worker number is leased.
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Snowflake | Self::SnowflakeNarrow | Self::DatedLocal)
    }

    /// Whether a store that lost its data must be noticed, and the owner of the key be asked.
    pub(crate) fn refuses_a_loss(self) -> bool {
        matches!(self, Self::Sequence | Self::Segment | Self::Dated)
    }

    /// How many stores it takes.
    pub(crate) fn stores(self) -> usize {
        if self == Self::Striped { 2 } else { 1 }
    }

    /// How far the time in an id may be from when it was asked for and given.
    pub(crate) fn tolerance(self) -> Option<Duration> {
        match self {
            Self::Snowflake | Self::SnowflakeNarrow => Some(Duration::from_secs(1)),
            // Seconds are the unit, and ids run two ahead.
            Self::Dated | Self::DatedLocal => Some(Duration::from_secs(4)),
            _ => None,
        }
    }
}

/// How a key is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) scheme: Scheme,
    pub(crate) window: Duration,
    /// Above what was used before the store lost it; else the key must be there.
    pub(crate) floor: Option<u64>,
    /// Make the key.
    pub(crate) making: bool,
}

/// An opened generator.
#[derive(Debug)]
pub(crate) enum Source {
    One(Ids),
    Several(Striped),
}

impl Opening {
    pub(crate) async fn open(self, keepers: &[Keeper]) -> Result<Source> {
        let (Some(keeper), Some(kind)) = (keepers.first(), self.scheme.kind()) else {
            return Striped::open(keepers, KEY).await.map(Source::Several);
        };
        let key = self.key(keeper);
        key.of_kind(kind).await.map(Source::One)
    }

    fn key(self, keeper: &Keeper) -> IdKey {
        let lease = Lease { window: Some(self.window), ..Lease::default() };
        let mut key = keeper.ids(KEY).lease(lease);
        if let Some(floor) = self.floor.filter(|_| self.scheme != Scheme::Dated) {
            key = key.floor(floor);
        }
        // Ids with a worker number go on by the clock where a store lost everything, and make the key anew.
        let may_be_made = self.making || self.floor.is_some() || self.scheme.is_leased();
        if may_be_made { key } else { key.existing() }
    }
}

impl Source {
    pub(crate) fn try_next(&self) -> Result<Option<Id>> {
        match self {
            Self::One(ids) => ids.try_next(),
            Self::Several(ids) => ids.try_next(),
        }
    }

    pub(crate) async fn next(&self) -> Result<Id> {
        match self {
            Self::One(ids) => ids.next().await,
            Self::Several(ids) => ids.next().await,
        }
    }

    pub(crate) async fn next_n(&self, count: u32) -> Result<Vec<Id>> {
        match self {
            Self::One(ids) => ids.next_n(count).await,
            Self::Several(ids) => ids.next_n(count).await,
        }
    }

    pub(crate) fn order(&self) -> Order {
        match self {
            Self::One(ids) => ids.order(),
            Self::Several(ids) => ids.order(),
        }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        match self {
            Self::One(ids) => ids.close().await,
            Self::Several(_) => Ok(()),
        }
    }
}
