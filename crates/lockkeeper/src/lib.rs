//! Distributed locks and ids over the stores people already run: one API, fair queues, fencing tokens.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! let keeper = lockkeeper::connect("memory:").await?;
//! let guard = keeper.lock("orders/42").acquire().await?;
//! // … the work, with guard.token() in every write …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # What a lock promises
//! *Claims exclude*: at no moment do two holders have a claim on one name that each may still
//! believe valid. Validity counts from before the winning request was sent, on a clock that goes
//! on while the machine sleeps, and ends before the store's own time does. When it ends,
//! [`Guard::lost`] is signalled, also while the store does not answer.
//!
//! # What a lock cannot promise
//! A process can be paused between looking at its guard and writing, for longer than any ttl.
//! No lock can stop that write; the resource can, if it checks the [`FencingToken`]. See
//! [`fence`].
//!
//! # Finding your way
//! [`Keeper`] is opened once. It makes a [`Lock`], an [`RwLock`], a semaphore, a [`Multi`] or an
//! [`Election`]; acquiring one gives a [`Guard`]. [`id`] has ids that nobody else gets. [`blocking`] is
//! the same for threads. [`event`] tells what happens, and with the feature `metrics` the module of that
//! name counts it. [`backend`] is for those who bring a store of their own.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod alarm;
pub mod backend;
mod background;
pub mod blocking;
mod broken;
mod by_id;
mod chacha;
mod claim;
mod clock;
mod completing;
mod connect;
mod contact;
mod duration;
mod election;
mod engine;
mod error;
pub mod event;
pub mod fence;
mod fnv;
mod guard;
mod hold;
pub mod id;
mod identity;
mod keeper;
mod lock;
mod loss;
mod lost;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
#[path = "meter_off.rs"]
mod meter;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub mod metrics;
mod multi;
mod name;
mod operation;
mod patience;
mod recipes;
mod reentry;
mod release;
mod rw_lock;
mod scheduler;
#[cfg(feature = "serde")]
mod serialize;
mod similar;
mod terms;
#[cfg(test)]
mod tests;
mod ticket;
mod token;
mod waiter;

pub use backend::Page;
pub use claim::{ClaimId, FencingToken, Mode, Owner};
pub use connect::{connect, connect_with, open};
pub use duration::parse_duration;
pub use election::{Election, Leader, Leadership};
pub use error::{Error, ErrorKind, Result};
pub use guard::Guard;
pub use keeper::{Health, Keeper};
pub use lock::Lock;
pub use loss::LossReason;
pub use lost::Lost;
pub use multi::{Multi, MultiGuard};
pub use name::Name;
pub use recipes::{Recipe, recipes};
pub use rw_lock::RwLock;
pub use ticket::Ticket;
