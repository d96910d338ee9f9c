//! The `lockkeeper` program, as its users meet it: real processes, real files, real signals.
#![cfg(unix)]

mod asking;
mod bench;
mod config;
mod crowd;
mod doctor;
mod events;
mod exporter;
mod globals;
mod ids;
mod inspect;
mod lead;
mod loss;
mod pipeline;
mod printed;
mod run;
mod run_ticket;
mod screen;
mod shell;
mod signals;
mod stores;
mod support;
mod terminal;
mod tickets;
mod usage;
mod wait;
mod waiting;
mod watch;
