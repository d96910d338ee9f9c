//! The one place of a process where its requests meet the file.
//!
//! A caller that comes while the connection is free runs its own job, on its own thread, together
//! with all other jobs that came meanwhile, in one transaction. When the file is busy with another
//! process, or a checkpoint is due, the jobs are left to the [`driver`](super::driver), so that no
//! async thread waits for a disk or for a lock.
//!
//! ```text
//!   caller ── job ──► queue ──► connection free?  yes: one transaction for all jobs, commit,
//!                                                      then every caller gets its answer
//!                                                 no:  the caller that has it will look again
//!                                file busy?            the driver tries again, with pauses
//! ```
//!
//! No job is forgotten: every function that lets go of the connection looks at the queue
//! afterwards, or belongs to the driver, which looks at it before it sleeps. So a caller that finds
//! the connection taken may leave its job in the queue and go.
//!
//! Mutexes are taken in the order contention, connection, queue. The mutexes of
//! [`waiters`](super::waiters) come after all three, and nothing here is called while one of those
//! is held.

mod checkpoint;
mod file;
mod jobs;
pub(super) mod transaction;

use super::error::{busy, copy_of, is_busy, store_error};
use super::schema;
use super::sockets::Sockets;
use super::time::{StoreClock, wall_us};
use super::waiters::{WaitEnd, Waiters, Wakeup};
use crate::backend::support::alarms::OwnAlarm;
use crate::backend::support::sync::lock;
use crate::backend::{Alarm, Moment};
use crate::error::{Error, Result};
use checkpoint::Checkpoints;
use file::{Contention, OpenedFile};
use jobs::Jobs;
use rusqlite::Connection;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;
use tokio::sync::oneshot::error::TryRecvError;
use transaction::{Job, Transaction, closed, job, run};

/// How many transactions one caller runs before it leaves the rest to the driver. Without a limit,
/// one caller among many could be kept at the jobs of the others for as long as they come.
const MOST_BATCHES: usize = 4;
/// How long the driver runs jobs before it does other things: well below the two seconds that a
/// waiter's row lasts without a heartbeat.
const SHIFT: Duration = Duration::from_millis(50);

/// A connection to the file, shared by all of a keeper.
///
/// One connection and not a pool: SQLite has one writer at a time, so further connections of the
/// same process would only compete for the file. Kept alive by the keeper and by every claim that
/// was made on it; the driver has only a weak reference.
#[derive(Debug)]
pub(super) struct Client {
    file: OpenedFile,
    /// The name of this process in the file: that of the rows it looks after. Made new for each
    /// client and never used twice, so no client takes the waiting rows of an earlier one for its
    /// own.
    pub(super) process: String,
    pub(super) clock: StoreClock,
    /// Callers only try to lock it; the driver may wait for it. While it is unlocked no transaction
    /// is open.
    connection: Mutex<Connection>,
    queue: Jobs,
    /// Jobs whose outcome must survive a power failure. Only the driver runs them, since their commit
    /// waits for the disk.
    lasting: Jobs,
    checkpoints: Checkpoints,
    contention: Contention,
    /// The claims of this process that wait, and the alarms of those that are held.
    pub(super) waiters: Waiters,
    /// Shared with the driver, which sleeps on it after the client is gone.
    pub(super) wakeup: Arc<Wakeup>,
    /// Where other processes that use the file are woken.
    pub(super) sockets: Sockets,
    /// Something of this process was broken by itself, which the version number does not show.
    notices: AtomicBool,
    /// Whether the holders have been told that the file cannot be used; cleared by the next commit.
    endangered: AtomicBool,
    /// How often the driver looked after things, and sent heartbeats.
    #[cfg(test)]
    pub(super) passes: std::sync::atomic::AtomicU64,
    #[cfg(test)]
    pub(super) beats: std::sync::atomic::AtomicU64,
}

/// How a try at the file went.
enum Served {
    /// No job was turned away because of another process: the jobs have their answers, or an error,
    /// or were put back to be run one by one.
    All,
    /// Another process has the file. Nothing was done, and every job is still in the queue.
    Busy,
}

impl Client {
    /// Opens the file, and makes it ours if it is new. Takes a while, and may wait for other
    /// processes, so it is not for an async thread. The driver must be started before the client is
    /// used: jobs that find the file busy are left to it.
    pub(super) fn open(path: PathBuf, process: String) -> Result<Self> {
        let clock = StoreClock::of_this_machine();
        let connection = schema::open(&path, &clock)?;
        let (sockets, checkpoints) = (Sockets::beside(&path), Checkpoints::of(&path));
        Ok(Self {
            file: OpenedFile::new(path),
            process,
            clock,
            connection: Mutex::new(connection),
            queue: Jobs::default(),
            lasting: Jobs::default(),
            contention: Contention::default(),
            waiters: Waiters::default(),
            wakeup: Arc::default(),
            sockets,
            checkpoints,
            notices: AtomicBool::new(false),
            endangered: AtomicBool::new(false),
            #[cfg(test)]
            passes: Default::default(),
            #[cfg(test)]
            beats: Default::default(),
        })
    }

    /// Does `work` in a transaction and returns what it gave, once committed.
    ///
    /// `work` may run more than once, each time in a transaction of which nothing was committed
    /// before; so it must not change anything but the file. A caller that drops this future does
    /// not stop the job: what it did stands, and the engine gives back what was won thereby. After
    /// an error nothing of the job is in the file, as far as SQLite can tell.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (job, answer) = job(work);
        self.queue.push(job);
        self.serve();
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// As [`call`](Self::call), and what it returned survives a power failure: the commit waits for
    /// the disk. So it is left to the driver, and several such jobs share one commit.
    pub(super) async fn call_lasting<T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (job, answer) = job(work);
        self.lasting.push(job);
        self.wakeup.wake();
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// The same for the driver's thread, which may wait. Anybody else would block an async thread.
    pub(super) fn call_blocking<T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (job, mut answer) = job(work);
        self.queue.push(job);
        loop {
            self.serve_patiently();
            match answer.try_recv() {
                Ok(outcome) => return outcome,
                Err(TryRecvError::Closed) => return Err(closed()),
                // Another caller has taken the job along and has not committed yet, or the driver's
                // shift ended before the job's turn.
                Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Runs all jobs in the queue if the connection and the file are free, and wakes the driver for
    /// what is left. Waits neither for the connection nor for another process.
    fn serve(&self) {
        for _ in 0..MOST_BATCHES {
            if self.queue.is_empty() {
                return;
            }
            // The log must not grow while the driver waits for a chance to move it into the file.
            // It makes the checkpoint first and runs these jobs right after.
            if self.checkpoint_due() {
                break;
            }
            // The caller that has the connection looks at the queue again after letting go of it.
            let connection = match self.connection.try_lock() {
                Ok(connection) => connection,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if let Served::Busy = self.batch(&connection, &self.queue) {
                break;
            }
        }
        if !self.queue.is_empty() {
            self.wakeup.wake();
        }
    }

    /// Runs the jobs in the queue, also while the file is busy; but not for so long that the driver
    /// could do nothing else. Only for the driver: it sleeps between tries.
    ///
    /// When one process has kept the file for [`BUSY_LIMIT`](super::error::BUSY_LIMIT), every job
    /// in the queue fails. Callers are told rather than kept waiting without end, and the engine
    /// decides whether to ask again.
    pub(super) fn serve_patiently(&self) {
        let shift = Moment::now() + SHIFT;
        let mut lasting = false;
        while self.has_jobs() && Moment::now() < shift {
            let connection = lock(&self.connection);
            // In turns, so that neither kind keeps the other waiting.
            lasting = !self.lasting.is_empty() && (!lasting || self.queue.is_empty());
            let served = match lasting {
                true => self.lasting_batch(&connection),
                false => self.batch(&connection, &self.queue),
            };
            // Before anything else, so that a caller that comes now finds the connection free.
            drop(connection);
            if let Served::All = served {
                self.contention.over();
                if self.checkpoint_due() {
                    return;
                }
                continue;
            }
            match self.still_busy(Moment::now()) {
                Some(pause) => std::thread::sleep(pause),
                None => return self.fail_all(&store_error(self.path(), busy())),
            }
        }
    }

    /// As [`Contention::pause`]. Must not be called with the connection locked, which it may lock
    /// itself.
    pub(super) fn still_busy(&self, now: Moment) -> Option<Duration> {
        self.contention.pause(now, || self.data_version())
    }

    /// Whether any job waits for a transaction.
    pub(super) fn has_jobs(&self) -> bool {
        !self.queue.is_empty() || !self.lasting.is_empty()
    }

    /// One transaction for all jobs that must survive a power failure, which waits for the disk.
    fn lasting_batch(&self, connection: &Connection) -> Served {
        // Outside of a transaction, where alone it can be changed.
        let set = |how| connection.pragma_update(None, "synchronous", how);
        if let Err(error) = set("full") {
            self.lasting.fail(&store_error(self.path(), error));
            return Served::All;
        }
        let served = self.batch(connection, &self.lasting);
        // Should this fail, locks wait for the disk as well, and nothing is wrong but slow.
        if let Err(error) = set("normal") {
            tracing::debug!(%error, "the lock file goes on waiting for the disk");
        }
        served
    }

    /// One transaction for all jobs that are waiting now. The caller has the connection locked.
    ///
    /// A crash before the commit leaves no trace of any job. A crash after it leaves all of them
    /// done and nobody told: what was granted then expires by itself, since nobody renews it.
    fn batch(&self, connection: &Connection, waiting: &Jobs) -> Served {
        // Before the transaction: a commit to a deleted file succeeds, and would grant locks that
        // no other process can see.
        if let Err(error) = self.still_the_same_file() {
            self.fail_all(&error);
            return Served::All;
        }
        // Before BEGIN, while the time that is written into the file is read after it: so a holder
        // counts its validity from an earlier moment than the file does, however long BEGIN took.
        let sent = Moment::now();
        match run(connection, "BEGIN IMMEDIATE") {
            Ok(()) => {}
            Err(error) if is_busy(&error) => return Served::Busy,
            Err(error) => {
                self.fail_all(&store_error(self.path(), error));
                return Served::All;
            }
        }
        // Only now, with the file in hand: jobs that came during BEGIN are taken along, and a busy
        // file leaves the queue as it was.
        let mut jobs = waiting.take();
        match self.attempt(connection, sent, jobs.make_contiguous()) {
            Ok(()) => jobs.into_iter().for_each(|job| job.finish(Ok(()))),
            Err(error) if jobs.len() == 1 => {
                let error = store_error(self.path(), error);
                jobs.into_iter().for_each(|job| job.finish(Err(copy_of(&error))));
            }
            // One of them failed, and its rollback undid the others: they are run again, each
            // alone, so that only the one at fault gets the error.
            Err(_) => waiting.put_back(jobs),
        }
        Served::All
    }

    /// Runs the jobs in the transaction that was begun, ends it, and wakes the waiters that it
    /// granted.
    ///
    /// On return no transaction is open, unless the rollback itself failed. Waiters are told after
    /// the commit only: a grant that was rolled back has reached nobody.
    fn attempt(
        &self,
        connection: &Connection,
        sent: Moment,
        jobs: &mut [Box<dyn Job>],
    ) -> rusqlite::Result<()> {
        let tx = self.transaction(connection, sent);
        let outcome = jobs.iter_mut().try_for_each(|job| job.run(&tx));
        let outcome = outcome.and_then(|()| run(connection, "COMMIT"));
        if outcome.is_err() {
            // After some errors, such as a full disk, SQLite has rolled back by itself.
            if !connection.is_autocommit() {
                run(connection, "ROLLBACK")?;
            }
            return outcome;
        }
        self.endangered.store(false, Ordering::Relaxed);
        self.checkpoints.wrote(jobs.len());
        for (name, granted) in tx.granted.into_inner() {
            let id = granted.id.clone();
            if !self.waiters.tell(&id, WaitEnd::Granted(granted)) {
                // The waiter is gone with its runtime: nobody would give the claim back.
                let (removal, _) = job(move |tx: &Transaction<'_>| tx.remove_own(&name, &id));
                self.queue.push(removal);
            }
        }
        for process in tx.concerned.into_inner() {
            self.sockets.wake(&process);
        }
        Ok(())
    }

    /// Tells every caller that the file cannot be used, and the holders that they are in jeopardy.
    /// None of the jobs has changed anything: they were still in the queue.
    fn fail_all(&self, error: &Error) {
        self.endanger();
        self.queue.fail(error);
        self.lasting.fail(error);
    }

    /// Whether callers leave their jobs to the driver until it has made a checkpoint.
    pub(super) fn checkpoint_due(&self) -> bool {
        self.checkpoints.is_due()
    }

    /// Moves the write-ahead log into the file; slow, for the driver. Jobs that come meanwhile find
    /// the connection taken and stay in the queue.
    pub(super) fn checkpoint(&self) {
        self.checkpoints.run(&lock(&self.connection));
    }

    /// A number that changes when another connection has committed something; `None` where it
    /// cannot be read. Commits of our own connection do not change it. Cheaper than a query on the
    /// table, so the driver asks for it first.
    pub(super) fn data_version(&self) -> Option<i64> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("PRAGMA data_version").ok()?;
        statement.query_row([], |row| row.get(0)).ok()
    }

    /// Reads without writing: works also while another process keeps the file.
    ///
    /// If the connection is taken, the read becomes a job like any other, and then needs the file
    /// as every writing transaction does.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        mut read: impl FnMut(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.look_at_once(&mut read) {
            Some(looked) => looked,
            // Another caller has the connection, perhaps for long, and an async thread must not
            // wait for it.
            None => self.call(read).await,
        }
    }

    /// The same without waiting for the connection: `None` when it is taken. All reads of `read`
    /// see the same commit.
    pub(super) fn look_at_once<T>(
        &self,
        read: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Option<Result<T>> {
        if let Err(error) = self.still_the_same_file() {
            return Some(Err(error));
        }
        let connection = self.connection.try_lock().ok()?;
        let looked = run(&connection, "BEGIN").and_then(|()| {
            let found = read(&self.transaction(&connection, Moment::now()));
            run(&connection, "COMMIT").and(found)
        });
        drop(connection);
        // A caller that came meanwhile found the connection taken.
        self.serve();
        Some(looked.map_err(|error| store_error(self.path(), error)))
    }

    /// What a transaction that was begun on the connection needs to know. Reads the clocks, so it
    /// must be called after BEGIN.
    fn transaction<'a>(&'a self, connection: &'a Connection, sent: Moment) -> Transaction<'a> {
        Transaction {
            connection,
            process: &self.process,
            now: self.clock.now_ms(),
            wall: wall_us(),
            sent,
            granted: RefCell::default(),
            concerned: RefCell::default(),
        }
    }

    /// Whether something was handed to this process or broken. Yes where that cannot be read: then
    /// a transaction finds out. A plain read, so that a commit of others that does not concern this
    /// process costs no write.
    pub(super) fn has_notices(&self) -> bool {
        Transaction::has_notices(&lock(&self.connection), &self.process).unwrap_or(true)
    }

    /// Has the driver look for notices although no other process wrote.
    pub(super) fn look_for_notices(&self) {
        self.notices.store(true, Ordering::Relaxed);
        self.wakeup.wake();
    }

    /// Whether [`look_for_notices`](Self::look_for_notices) was called since this was last asked.
    /// For the driver alone, since asking clears the flag.
    pub(super) fn told_to_look(&self) -> bool {
        self.notices.swap(false, Ordering::Relaxed)
    }

    /// The file as an absolute path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// As [`OpenedFile::still_the_same`].
    pub(super) fn still_the_same_file(&self) -> Result<()> {
        self.file.still_the_same()
    }

    /// Tells the holders that the file cannot be used, once until it could be used again: each of
    /// them then renews at once, and a renewal that fails as well is no news.
    pub(super) fn endanger(&self) {
        if !self.endangered.swap(true, Ordering::Relaxed) {
            self.waiters.endanger();
        }
    }

    /// Says that the waiter's row is in the file, to be looked after by the driver. From here on
    /// the driver takes a missing row for a lost place, so this must not be said before the commit.
    pub(super) fn waiter_is_queued(&self, id: &str, until_expiry: Duration) {
        self.waiters.waiter_is_queued(id, Moment::now() + until_expiry);
        self.wakeup.wake();
    }

    /// Keeps `alarm`, to be rung should the claim be broken. Wakes the driver only if it sleeps for
    /// long: an uncontended lock would otherwise cost a switch of threads.
    pub(super) fn watch(&self, own: &mut OwnAlarm, id: &str, alarm: Alarm) {
        self.waiters.watch(own, id, alarm);
        // The alarm is entered first and the flag read after it, while the driver sets the flag
        // first and then looks for alarms: so at least one of the two sees the other.
        if self.wakeup.fast_asleep.load(Ordering::SeqCst) {
            self.wakeup.wake();
        }
    }
}

impl Drop for Client {
    /// Takes the socket's name away, so that nobody sends to it, and has the driver's thread end.
    /// The rows of this process, if there are any, expire by themselves.
    fn drop(&mut self) {
        if let Some(socket) = self.wakeup.socket() {
            socket.remove();
        }
        // The driver tries to upgrade its weak reference when it wakes, and ends when it cannot.
        self.wakeup.wake();
    }
}
