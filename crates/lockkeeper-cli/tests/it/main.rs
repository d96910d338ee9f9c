//! The `lockkeeper` program, as its users meet it: real processes, real files, real signals.
#![cfg(unix)]

mod crowd;
mod ids;
mod inspect;
mod loss;
mod printed;
mod run;
mod signals;
mod stores;
mod support;
mod terminal;
mod usage;
mod waiting;
