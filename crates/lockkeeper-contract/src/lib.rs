//! The contract suite that every lockkeeper backend passes: one trial per promise, selected by the
//! backend's capability.
//!
//! A backend must refuse what it does not promise: where a capability is absent, the trial checks
//! that exactly [`Unsupported`](lockkeeper::ErrorKind::Unsupported) comes back and names a recipe
//! that has it. A trial that could not create the situation it tests fails with `unknown: …`; it
//! never passes.
//!
//! # For a backend of your own
//! Make `tests/contract.rs` a test without a harness (`harness = false` in `Cargo.toml`):
//!
//! ```no_run
//! use lockkeeper::backend::{Backend, memory::Memory};
//! use lockkeeper_contract::{Subject, libtest_mimic, suite};
//! use std::sync::Arc;
//!
//! fn main() {
//!     let arguments = libtest_mimic::Arguments::from_args();
//!     let store = Arc::new(Memory::new());
//!     let subject = Subject::from_fn("mine", move || {
//!         let handle: Arc<dyn Backend> = store.clone();
//!         async move { Ok(handle) }
//!     });
//!     libtest_mimic::run(&arguments, suite(&subject)).exit();
//! }
//! ```
//!
//! A backend that reaches beyond one process is also tested across processes, some of which are
//! paused and killed. Those are run by a small program, the [`taker`], that opens your backend by
//! its URL:
//!
//! ```no_run
//! // src/bin/my_taker.rs
//! # use lockkeeper_contract::taker;
//! fn main() {
//!     taker::main(|url| async move { lockkeeper::open(&url).await });
//! }
//! ```
//!
//! ```no_run
//! # use lockkeeper_contract::Subject;
//! # let (open, url, my_taker) = (|| async { lockkeeper::open("memory:").await }, "", "");
//! let subject = Subject::from_fn("mine", open).across_processes(url, my_taker);
//! ```
//!
//! [`Faulty`] is the wrapper that makes a store fail on command; it is public because it is
//! useful in other tests too.

mod case;
mod cases;
mod faulty;
mod kind;
#[cfg(unix)]
mod process;
mod stage;
mod subject;
pub mod taker;
mod verdict;
mod witness;

pub use case::{Verdict, suite, suite_of_flawed, verdicts};
pub use faulty::{Faulty, Renewals};
pub use libtest_mimic;
pub use subject::Subject;
