//! Ways to break a server, and to repair it.

use super::handle::Server;
use super::ports::PortTaken;
use super::program::redis;
use super::wire::resp::Resp;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// This fault is not possible with this server, or not on this machine.
#[derive(Debug)]
pub struct Unsupported(String);

impl Unsupported {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

impl Server {
    /// Kills it, so that it cannot write anything more.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&self) -> Result<()> {
        self.let_disk_go_on();
        let process = self.process().take();
        process.with_context(|| format!("{} is not running", self.name()))?.kill();
        Ok(())
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// When it is not running, or does not end; it is then killed.
    pub fn stop(&self) -> Result<()> {
        self.let_disk_go_on();
        let process = self.process().take();
        let mut process = process.with_context(|| format!("{} is not running", self.name()))?;
        process
            .stop(self.program.stop_signal())
            .with_context(|| format!("stopping {}", self.name()))
    }

    /// Pauses it: its connections stay open, and nothing is answered.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<()> {
        match &*self.process() {
            Some(process) => process.pause(),
            None => bail!("{} is not running", self.name()),
        }
        Ok(())
    }

    /// Resumes it after a pause.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<()> {
        match &*self.process() {
            Some(process) => process.resume(),
            None => bail!("{} is not running", self.name()),
        }
        Ok(())
    }

    /// Starts it again on the same port with its data; stops it first if it runs.
    ///
    /// # Errors
    /// As at the first start.
    pub fn restart(&self) -> Result<()> {
        if self.pid().is_some() {
            self.stop()?;
        }
        self.come_back()
    }

    /// As [`restart`](Self::restart), without waiting: a member of a group without a majority does
    /// not answer.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn relaunch(&self) -> Result<()> {
        if self.pid().is_some() {
            self.stop()?;
        }
        self.start_process()
    }

    /// Starts it again on the same port without data; kills it first if it runs.
    ///
    /// # Errors
    /// As at the first start.
    pub fn restart_empty(&self) -> Result<()> {
        self.let_disk_go_on();
        *self.process() = None;
        self.place.empty_data()?;
        self.program.prepare(&self.place)?;
        self.come_back()
    }

    /// Copies its data as it is now, for [`restart_as_kept`](Self::restart_as_kept).
    ///
    /// # Errors
    /// [`Unsupported`] if it is not Redis, whose files can be copied while it writes.
    pub fn keep_copy(&self) -> Result<()> {
        // A server that is not durable has nothing on the disk yet.
        self.redis()?.ask(&["SAVE"])?;
        self.place.copy_data()
    }

    /// Kills it if it runs, and starts it again on the same port with the copied data: later writes
    /// are lost, and later deletions undone.
    ///
    /// # Errors
    /// As at the first start; when there is no copy.
    pub fn restart_as_kept(&self) -> Result<()> {
        self.let_disk_go_on();
        *self.process() = None;
        self.place.empty_data()?;
        self.place.restore_data()?;
        self.come_back()
    }

    /// Sets its clock ahead of the true one.
    ///
    /// # Errors
    /// [`Unsupported`] unless it was started with a [clock](super::Plan::clock) of its own.
    pub fn set_clock_ahead(&self, by: Duration) -> Result<()> {
        self.fake_clock()?.jump_to(by.as_secs_f64())
    }

    /// Sets its clock behind the true one.
    ///
    /// # Errors
    /// As [`set_clock_ahead`](Self::set_clock_ahead).
    pub fn set_clock_back(&self, by: Duration) -> Result<()> {
        self.fake_clock()?.jump_to(-by.as_secs_f64())
    }

    /// Lets its clock run at `rate` times the true speed, from its current time.
    ///
    /// # Errors
    /// As [`set_clock_ahead`](Self::set_clock_ahead).
    pub fn set_clock_rate(&self, rate: f64) -> Result<()> {
        self.fake_clock()?.run_at(rate)
    }

    /// Fills the disk that its data is on.
    ///
    /// # Errors
    /// [`Unsupported`] unless it was started on a [disk](super::Plan::disk) of its own.
    pub fn fill_disk(&self) -> Result<()> {
        self.own_disk()?.fill()
    }

    /// Frees the disk again.
    ///
    /// # Errors
    /// As [`fill_disk`](Self::fill_disk).
    pub fn free_disk(&self) -> Result<()> {
        self.own_disk()?.free()
    }

    /// Makes its disk hang: every write blocks. The server still answers what it can from memory.
    /// Killing or stopping it resumes the disk first: a process that waits for the disk cannot end.
    ///
    /// # Errors
    /// [`Unsupported`] unless it was started on a disk that can [hang](super::Plan::hanging_disk).
    pub fn hang_disk(&self) -> Result<()> {
        self.own_disk()?.hang()
    }

    /// Resumes its disk.
    ///
    /// # Errors
    /// As [`hang_disk`](Self::hang_disk), and when it does not hang.
    pub fn mend_disk(&self) -> Result<()> {
        self.own_disk()?.go_on()
    }

    pub(crate) fn let_disk_go_on(&self) {
        self.disk.iter().for_each(super::disk::Disk::go_on_if_it_hangs);
    }

    /// Limits its memory; zero means no limit. `policy` says what happens at the limit:
    /// `noeviction` refuses writes, `allkeys-lru` and others evict keys.
    ///
    /// # Errors
    /// [`Unsupported`] if it is not Redis.
    pub fn limit_memory(&self, bytes: u64, policy: &str) -> Result<()> {
        let mut redis = self.redis()?;
        redis.ask(&["CONFIG", "SET", "maxmemory-policy", policy])?;
        redis.ask(&["CONFIG", "SET", "maxmemory", &bytes.to_string()])?;
        Ok(())
    }

    /// A connection for commands, if it is Redis.
    ///
    /// # Errors
    /// [`Unsupported`] if it is not Redis, or when it does not answer.
    pub fn redis(&self) -> Result<Resp> {
        match self.program.redis() {
            Some(program) => redis::connect(program, &self.place),
            None => Err(Unsupported::new(format!("{} is not Redis", self.name())).into()),
        }
    }

    /// It must keep its port: if another process has the port for a moment, this retries.
    fn come_back(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            self.start_process()?;
            match self.await_answer() {
                Err(error) if error.is::<PortTaken>() && Instant::now() < end => {
                    *self.process() = None;
                    sleep(Duration::from_millis(50));
                }
                other => return other,
            }
        }
    }

    fn fake_clock(&self) -> Result<&super::clock::FakeClock> {
        self.clock.as_ref().ok_or_else(|| {
            Unsupported::new(format!("{} was started without a clock of its own", self.name()))
                .into()
        })
    }

    fn own_disk(&self) -> Result<&super::disk::Disk> {
        self.disk.as_ref().ok_or_else(|| {
            Unsupported::new(format!("{} was started without a disk of its own", self.name()))
                .into()
        })
    }
}
