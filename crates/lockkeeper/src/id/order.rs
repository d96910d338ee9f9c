//! What a generator promises, and how it is doing.

use std::fmt;
use std::time::{Duration, SystemTime};

/// In which order ids come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Each is larger than every one that anybody got for the key before.
    Strict,
    /// Each is larger than every one that this generator gave before.
    PerProcess,
    /// As [`PerProcess`](Self::PerProcess), and ids of different generators are in the order of time, but
    /// for so much.
    RoughlyByTime(Duration),
    /// None.
    Unordered,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict => f.write_str("strictly increasing per key"),
            Self::PerProcess => f.write_str("increasing per process"),
            Self::RoughlyByTime(by) => write!(f, "increasing per process, by time within {by:?}"),
            Self::Unordered => f.write_str("none"),
        }
    }
}

/// How a generator is doing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Health {
    /// The worker number that it has, where it needs one.
    pub worker: Option<u32>,
    /// For how long it can go on without the store, at the least.
    pub headroom: Option<Duration>,
    /// How many ids it can give without the store.
    pub left: Option<u64>,
    /// How often numbers were reserved in the store.
    pub reservations: u64,
    /// How often a caller had to wait for numbers to be reserved, the first time not counted.
    pub waits: u64,
    /// What the store said last, if it was no good.
    pub trouble: Option<String>,
    /// The last moment of which there can be an id.
    pub end: Option<SystemTime>,
}
