//! The same workload inside one process, for tests and for stores that reach no further.

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

/// What a run is made of.
///
/// Its methods run it with threads in place of processes, each with a runtime and a keeper of its
/// own: what a pause is to a process, [`Fault::Stall`] is to them. They block until the run is
/// over and must not be called from a task of tokio.
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
    /// How long a holder is at work, at most.
    pub toil: Duration,
    /// How long faults happen.
    pub length: Duration,
    /// How long the run goes on after them.
    pub healing: Duration,
    /// What is broken meanwhile.
    pub faults: Vec<Fault>,
    /// Decides all choices.
    pub seed: u64,
    /// Where the history goes: a folder without one.
    pub out: PathBuf,
}

impl Trial {
    /// Five threads of two tasks that contend for two names for ten seconds; nothing is broken.
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

    /// Runs it on one store that all share.
    ///
    /// # Errors
    /// When a fault is not possible here, the store cannot be used, or the history not be written.
    pub fn run_on(&self, backend: Arc<dyn Backend>) -> Result<Run> {
        driver::run(self, Crew::sharing(backend), None, Progress::silent())
    }

    /// Runs it on a store that each thread opens for itself, by a way that can be broken: `open`
    /// is given an address for each of `hosts`, in their order.
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
