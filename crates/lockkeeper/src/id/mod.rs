//! Ids that nobody else gets, by the stores that locks are in.
//!
//! | kind | order | a request for | reads as | take it for |
//! |---|---|---|---|---|
//! | [`Sequence`] | strict per key | each id or batch | 1, 2, 3 | numbers of documents, ids per user |
//! | [`Segment`] | per process | each range | 1, 2, 3 | many small numbers, fast |
//! | [`AutoIncrement`] | the database's | each id or batch | 1, 2, 3 | what the database does anyway |
//! | [`Striped`] | roughly by time | each id or batch | 59,212,345,678,903 | two databases, one may fail |
//! | [`Snowflake`] | roughly by time | the worker number | 248,356,782,071,808,000 | many, fast, 64 bits |
//! | [`Dated`] | strict per key | each id or batch | 2026111507300000042 | a day read at a glance |
//! | [`DatedLocal`] | roughly by time | the worker number | 2611150730000070042 | the same, many and fast |
//! | `Uuid7`, `Ulids`, `Uuid4` | per process; none | – | 128 bits | no store |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! use lockkeeper::id::{Generator, Layout};
//!
//! let keeper = lockkeeper::connect("memory:").await?;
//! let invoices = keeper.ids("invoices").sequence().await?;
//! assert_eq!(invoices.next().await?.get(), 1);
//! let events = keeper.ids("events").snowflake(Layout::default()).await?;
//! let id = events.next().await?;
//! # Ok(()) }
//! ```
//!
//! # What is promised
//! *No id comes twice*, also over crashes, pauses, lost answers, clocks that are set, and a store that
//! was away; and where that cannot be known there is an error and no id. Kinds of which the store must not
//! forget: a store that lost the count of a sequence refuses to go on ([`IdKey::floor`]). A store that
//! lost everything looks like a new one: [`IdKey::existing`] refuses to begin there.
//!
//! What a key is made of (kind, layout, epoch, offset) is on record in the store, and compared whenever
//! it is opened.

mod any;
mod auto_increment;
pub(crate) mod calendar;
mod check_digit;
mod clock;
mod core;
mod counter;
mod dated;
mod generator;
mod layout;
mod leased;
mod open;
mod order;
#[cfg(any(feature = "ulid", feature = "uuid"))]
mod random;
pub(crate) mod registry;
mod scale;
mod segment;
mod sequence;
pub(crate) mod store;
mod striped;
mod terms;
#[cfg(test)]
mod tests;
mod value;
pub(crate) mod worker;

pub use any::{DatedLocal, Ids, Inspection, Snowflake};
pub use auto_increment::AutoIncrement;
pub use calendar::{beginning_of, utc};
pub use dated::{DateFormat, Dated, Digits};
pub use generator::Generator;
pub use layout::Layout;
pub use leased::{Lease, Leased};
pub use open::IdKey;
pub use order::{Health, Order};
#[cfg(feature = "ulid")]
pub use random::Ulids;
#[cfg(feature = "uuid")]
pub use random::{Uuid4, Uuid7};
pub use registry::KeyView;
pub use scale::Scale;
pub use segment::{Block, Segment};
pub use sequence::Sequence;
pub use striped::Striped;
pub use terms::Kind;
pub use value::Id;
pub use worker::WorkerView;
