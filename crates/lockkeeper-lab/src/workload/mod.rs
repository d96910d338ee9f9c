//! Clients that contend, resources they write to, and faults that hit them.

mod driver;
mod recorder;
mod resource;
mod worker;

pub use driver::{Run, load, run};
pub use worker::work;

use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What every name of a run begins with.
pub(crate) const PREFIX: &str = "lab/";
/// Short, so that a pause outlasts it.
pub(crate) const TTL: Duration = Duration::from_millis(1000);

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Take locks alone.
    Lock,
    /// Read more often than write.
    Rw,
    /// Take one of two permits.
    Permits,
    /// Take locks, and go away half-way every other time.
    Cancel,
}

/// What can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// A client process is killed, and replaced by a new one.
    Kill,
    /// A client process is stopped for longer than its ttl.
    Pause,
}

impl Fault {
    /// What it is called in a history.
    pub fn word(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Pause => "pause",
        }
    }
}

/// A run, as asked for on the command line.
#[derive(Debug, Clone, Args)]
pub struct RunArguments {
    /// The store that keeps the locks
    #[arg(long, value_name = "URL")]
    pub store: String,
    /// Tasks in each process
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Processes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub processes: u32,
    /// Seconds during which faults happen
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Names to contend for
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub names: u32,
    /// What the clients do
    #[arg(long, value_enum, default_value_t = Work::Lock)]
    pub work: Work,
    /// What is broken meanwhile
    #[arg(long, value_enum, value_delimiter = ',')]
    pub fault: Vec<Fault>,
    /// Repeats the choices of an earlier run
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where the history and the picture go [default: a new folder]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// One process of a run; started by [`run`].
#[derive(Debug, Clone, Args)]
pub struct WorkArguments {
    #[arg(long)]
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) process: String,
    #[arg(long)]
    pub(crate) number: u64,
    #[arg(long)]
    pub(crate) clients: u32,
    #[arg(long)]
    pub(crate) names: u32,
    #[arg(long, value_enum)]
    pub(crate) work: Work,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) history: PathBuf,
    #[arg(long)]
    pub(crate) resources: SocketAddr,
}
