//! Locks under faults: a run is recorded, and a judge says whether it was safe.
//!
//! `lab run` has several processes contend for locks while some of them are killed and paused;
//! `lab check` judges a recorded history again. The parts:
//!
//! - [`history`]: the events, one line of JSON each, on one clock for all processes.
//! - [`compare`]: every recipe and other libraries on the same servers, as figures.
//! - [`check`]: the judge. Its verdict is pass, fail, or unknown when too little happened.
//! - [`ids`]: ids under faults, and their judge.
//! - [`interop`]: whether we and other libraries exclude each other.
//! - [`picture`]: the history as an HTML page.
//! - [`proxy`]: network faults on demand, between a client and a server.
//! - [`screen`]: a session of the command line, as the picture of a terminal.
//! - [`server`]: real servers on demand, and ways to break them.
//! - [`stores`]: the one list of stores, and what is tried on each.
//! - [`stories`]: the known failures of distributed locks, each shown with its cure.
//! - [`trials`]: what tests that break servers have in common.
//! - [`workload`]: the clients, the resources they write to, and the faults.

pub mod check;
pub mod compare;
pub mod dice;
pub mod history;
pub mod ids;
pub mod interop;
pub mod picture;
pub mod proxy;
pub mod screen;
pub mod server;
pub mod stores;
pub mod stories;
pub mod trials;
pub mod workload;
