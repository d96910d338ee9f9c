//! The same workload inside one process, for tests and for stores that other processes cannot
//! reach.

use super::breakable::Breakable;
use super::crew::Crew;
use super::driver::{self, Run};
use super::fault::Fault;
use super::progress::Progress;
use super::{TOIL, TTL, Work};
use crate::proxy::Framing;
use anyhow::Result;
use lockkeeper::backend::Backend;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The parameters of a run.
///
/// Its methods use threads in place of processes, each with its own runtime and keeper:
/// [`Fault::Stall`] is to a thread what a pause is to a process. They block until the run is over
/// and must not be called from a tokio task.
#[derive(Debug, Clone)]
pub struct Trial {
    /// What the clients do.
    pub work: Work,
    /// Processes, or threads that stand for them.
    pub processes: u32,
    /// Tasks in each.
    pub clients: u32,
    /// Names to contend for.
    pub names: u32,
    /// How long claims last without renewal.
    pub ttl: Duration,
    /// The longest that a holder works.
    pub toil: Duration,
    /// How long faults are injected.
    pub length: Duration,
    /// How long the run goes on after the faults.
    pub healing: Duration,
    /// Which faults are injected.
    pub faults: Vec<Fault>,
    /// Determines all random choices.
    pub seed: u64,
    /// The folder for the history; it must not contain one yet.
    pub out: PathBuf,
}

impl Trial {
    /// Five threads with two tasks each contend for two names for ten seconds, without faults.
    #[must_use]
    pub fn new(out: PathBuf) -> Self {
        Self {
            work: Work::Lock,
            processes: 5,
            clients: 2,
            names: 2,
            ttl: TTL,
            toil: TOIL,
            length: Duration::from_secs(10),
            healing: 2 * TTL,
            faults: Vec::new(),
            seed: 1,
            out,
        }
    }

    /// Runs it on one store that all threads share.
    ///
    /// # Errors
    /// When a fault is not possible here, the store cannot be used, or the history cannot be
    /// written.
    pub fn run_on(&self, backend: Arc<dyn Backend>) -> Result<Run> {
        driver::run(self, Crew::sharing(backend), None, Progress::silent())
    }

    /// Runs it on a store that each thread opens for itself, through its own proxies: `open` gets
    /// one address for each of `hosts`, in the same order.
    ///
    /// # Errors
    /// As [`run_on`](Self::run_on).
    pub fn run_behind(
        &self,
        hosts: &[SocketAddr],
        framing: Framing,
        open: impl Fn(&[SocketAddr]) -> Arc<dyn Backend> + Send + Sync + 'static,
        server: Option<Box<dyn Breakable>>,
    ) -> Result<Run> {
        let crew = Crew::Threads { hosts: hosts.to_vec(), framing, open: Arc::new(open) };
        driver::run(self, crew, server, Progress::silent())
    }
}
