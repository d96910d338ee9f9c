//! Ids under faults: processes take them and write them down while processes, clocks, the network and
//! the store are broken; a judge says whether all are unique and in the promised order.

mod driver;
mod file;
mod judge;
mod scheme;
mod stage;
mod taker;

pub use judge::Report;
pub use scheme::Scheme;
pub use taker::take;

use crate::server::Kind;
use crate::workload::Fault;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The environment variable that tells a process of a run its stores.
const STORES_VARIABLE: &str = "LOCKKEEPER_LAB_STORES";

/// A run about ids, as asked for on the command line.
#[derive(Debug, Clone, Args)]
pub struct IdsArguments {
    /// What ids they are
    #[arg(long, value_enum)]
    pub kind: Scheme,
    /// The store that they are of; twice for `striped`
    #[arg(long, value_name = "URL", required_unless_present = "server")]
    pub store: Vec<String>,
    /// Start a server of this kind for the run (two for `striped`), which can then be broken too
    #[arg(long, value_name = "KIND", value_parser = crate::workload::server_kind,
          conflicts_with = "store")]
    pub server: Option<Kind>,
    /// Processes that take ids
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub processes: u32,
    /// How many ids each process takes, as fast as it can [default: what comes within the seconds]
    #[arg(long)]
    pub count: Option<u64>,
    /// Seconds during which faults happen
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub seconds: u64,
    /// What is broken meanwhile; clock-jump is the clock of a process that takes ids
    #[arg(long, value_enum, value_delimiter = ',')]
    pub fault: Vec<Fault>,
    /// For how long ids go on while the store does not answer, where a worker number is leased
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub window_ms: u64,
    /// Repeats the choices of an earlier run
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where the ids go [default: a new folder, removed after a pass]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// One process of a run about ids; started by [`run`].
#[derive(Debug, Clone, Args)]
pub struct TakeArguments {
    #[arg(long, value_enum)]
    pub(crate) scheme: Scheme,
    #[arg(long, env = STORES_VARIABLE, hide_env_values = true)]
    pub(crate) stores: String,
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// Where the driver says what number is above all that were used
    #[arg(long)]
    pub(crate) floor_file: PathBuf,
    #[arg(long)]
    pub(crate) count: Option<u64>,
    #[arg(long)]
    pub(crate) window_ms: u64,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The clocks that this process sees are not the machine's
    #[arg(long)]
    pub(crate) faked: bool,
}

impl TakeArguments {
    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }
}

/// Takes ids, breaks what is asked for, and judges.
///
/// # Errors
/// When the request makes no sense, the store cannot be used, or nothing can be written.
pub fn run(arguments: &IdsArguments) -> Result<Report> {
    driver::run(arguments)
}

/// The ids in the file of a process, in the order in which it got them.
///
/// # Errors
/// When it is no such file.
pub fn given(file: &Path) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    file::read(file, |_, entry| {
        if let file::Entry::Ids(ids) = entry {
            all.extend(ids);
        }
    })?;
    Ok(all)
}
