//! Decimal ids in which a person reads the day and the second: strict through the store, or by a leased
//! worker number ([`Digits::Worker19`]).

mod format;
mod strict;

pub use format::{DateFormat, Digits};
pub use strict::Dated;
