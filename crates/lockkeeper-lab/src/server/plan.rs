//! The configuration of a server before it is started.

use super::disk::Disk;
use super::handle::Server;
use super::home::Home;
use super::place::{Place, user_instead_of_root};
use super::program::Program;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// A separate disk: with this many bytes, or one that can hang.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Of(u64),
    Hanging,
}

/// What to start, and how. Every program also has its own settings.
#[derive(Debug, Clone)]
#[must_use = "nothing is started before `start`"]
pub struct Plan<P> {
    pub(crate) home: Arc<Home>,
    pub(crate) program: P,
    clock: bool,
    disk: Option<Wanted>,
    data: Option<PathBuf>,
}

impl<P: Program + Clone + 'static> Plan<P> {
    pub(crate) fn new(home: Arc<Home>, program: P) -> Self {
        Self { home, program, clock: false, disk: None, data: None }
    }

    /// Gives it a separate clock, for [`Server::set_clock_ahead`] and the like.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Puts its data on a disk of this many bytes, for [`Server::fill_disk`]. Needs root.
    pub fn disk(mut self, bytes: u64) -> Self {
        self.disk = Some(Wanted::Of(bytes));
        self
    }

    /// Puts its data on a disk that can hang, for [`Server::hang_disk`]. Needs root.
    pub fn hanging_disk(mut self) -> Self {
        self.disk = Some(Wanted::Hanging);
        self
    }

    /// Puts its data in this folder, which is not removed.
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Some(folder.into());
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed or does not start; the error then contains the end of its log.
    pub fn start(self) -> Result<Server> {
        let count = self.program.ports();
        self.home.clone().ports.on_free(count, |ports| self.start_on(ports))
    }

    /// Starts it on exactly these ports, as many as the program needs.
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`PortTaken`](super::PortTaken).
    pub fn start_on(&self, ports: &[u16]) -> Result<Server> {
        let server = self.launch(ports)?;
        server.await_answer()?;
        Ok(server)
    }

    /// Starts several independent servers, in parallel.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_many(self, count: usize) -> Result<Vec<Server>> {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..count).map(|_| scope.spawn(|| self.clone().start())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(resume)).collect()
        })
    }

    /// Starts it without waiting: members of a group answer only once the others run.
    pub(crate) fn launch(&self, ports: &[u16]) -> Result<Server> {
        let folder = self.home.new_folder(self.program.name())?;
        let data = self.data.clone().unwrap_or_else(|| folder.join("data"));
        let user = match self.program.user() {
            Some(name) => user_instead_of_root(name)?,
            None => None,
        };
        let place =
            Place { home: Arc::clone(&self.home), folder, data, ports: ports.to_vec(), user };
        place.make_data()?;
        let disk = match self.disk {
            Some(wanted) => {
                let disk = match wanted {
                    Wanted::Of(bytes) => Disk::mount(&place.data, bytes)?,
                    Wanted::Hanging => Disk::mount_image(&place.data, &place.folder.join("disk"))?,
                };
                place.make_data()?;
                Some(disk)
            }
            None => None,
        };
        let program = self.program.clone();
        program.prepare(&place).with_context(|| format!("cannot prepare {}", program.name()))?;
        Server::launch(Box::new(program), place, self.clock, disk)
    }
}

pub(crate) fn resume<T>(panic: Box<dyn std::any::Any + Send>) -> T {
    std::panic::resume_unwind(panic)
}
