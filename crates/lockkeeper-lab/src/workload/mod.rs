//! Clients that contend, the resources they write to, and faults that affect them.

mod again;
mod breakable;
mod crew;
mod driver;
mod fault;
mod gate;
mod groups;
mod member;
mod network;
mod progress;
mod recorder;
mod resource;
mod saved;
mod strike;
mod trial;
pub(crate) mod url;
mod worker;

pub use again::kind as server_kind;
pub use breakable::Breakable;
pub use driver::Run;
pub use fault::Fault;
pub use saved::load;
pub use trial::Trial;
pub(crate) use worker::when;
pub use worker::work;

pub(crate) use breakable::start_alone as start_server;
pub(crate) use fault::Needs;
pub(crate) use member::Member;
pub(crate) use network::Network;
pub(crate) use recorder::{Recorder, nanos, now};
pub(crate) use resource::{Access, Resources, Writer};
pub(crate) use strike::Strike;

use crate::server::{Kind, Lab};
use anyhow::Result;
use clap::{Args, ValueEnum};
use crew::Crew;
use lockkeeper::backend::Reach;
use progress::Progress;
use std::path::PathBuf;
use std::time::Duration;

/// The prefix of every name of a run.
pub(crate) const PREFIX: &str = "lab/";
/// Short, so that a pause outlasts it.
pub(crate) const TTL: Duration = Duration::from_millis(1000);
/// The longest that a holder works.
pub(crate) const TOIL: Duration = Duration::from_millis(5);
/// How long the run goes on after the last fault; every claim must be answered in this time.
const HEALING: Duration = Duration::from_secs(4);
/// The environment variable that tells a process of a run its store.
pub(crate) const STORE_VARIABLE: &str = "LOCKKEEPER_LAB_STORE";

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
    /// Take locks, hand them out as tickets, and go on with those of others.
    Tickets,
}

impl Work {
    /// Its name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Work::Lock => "lock",
            Work::Rw => "rw",
            Work::Permits => "permits",
            Work::Cancel => "cancel",
            Work::Tickets => "tickets",
        }
    }
}

/// A run, as asked for on the command line.
#[derive(Debug, Clone, Args)]
pub struct RunArguments {
    /// The store that keeps the locks
    #[arg(long, value_name = "URL", required_unless_present = "server")]
    pub store: Option<String>,
    /// Start a server of this kind for the run, which can then be broken too
    #[arg(long, value_name = "KIND", value_parser = again::kind, conflicts_with = "store")]
    pub server: Option<Kind>,
    /// As so many members, of which one at a time is broken: zookeeper and etcd with any number,
    /// redis as 3 with sentinels or as a cluster of 6
    #[arg(long, default_value_t = 1, requires = "server",
          value_parser = clap::value_parser!(u32).range(1..=7))]
    pub members: u32,
    /// The store's recipe, where it has several
    #[arg(long, value_name = "RECIPE")]
    pub recipe: Option<String>,
    /// Tasks in each process
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Processes, or threads where the store reaches no further
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
    #[command(flatten)]
    pub(crate) post: worker::Post,
    #[arg(long, env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) history: PathBuf,
}

/// Runs what the command line requested, and reports progress.
///
/// # Errors
/// When the request makes no sense, the store cannot be used, or the history cannot be written.
pub fn run(arguments: &RunArguments) -> Result<Run> {
    let lab = if arguments.server.is_some() { Some(Lab::open()?) } else { None };
    run_with(lab.as_ref(), arguments, Progress::told())
}

/// As [`run`], with servers of a lab that is there, and silently.
pub(crate) fn run_in(lab: &Lab, arguments: &RunArguments) -> Result<Run> {
    run_with(Some(lab), arguments, Progress::silent())
}

fn run_with(lab: Option<&Lab>, arguments: &RunArguments, progress: Progress) -> Result<Run> {
    let server = match (lab, arguments.server) {
        (Some(lab), Some(kind)) => {
            let members = usize::try_from(arguments.members)?;
            Some(breakable::start(lab, kind, members, &arguments.fault)?)
        }
        _ => None,
    };
    let store = arguments.store_url(server.as_ref().map(|(_, url)| url.as_str()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let backend = runtime.block_on(lockkeeper::open(&store))?;
    let crew = if backend.capability().reach == Reach::Process {
        Crew::sharing(backend)
    } else {
        drop(backend);
        Crew::Processes { store }
    };
    drop(runtime);
    driver::run(&arguments.trial(), crew, server.map(|(it, _)| it), progress)
}
