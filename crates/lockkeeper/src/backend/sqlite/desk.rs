//! The one place of a process where its requests meet the file.
//!
//! Whoever comes while the desk is free serves himself, on his own thread, and everyone who came
//! meanwhile along with him, in one transaction. When the file is busy with another process, or
//! a checkpoint is due, the requests are left to the clerk, so that no async thread waits for a
//! disk or for a lock.

use super::bell::Bell;
use super::job::{Job, closed, job};
use super::roll::{Called, Roll};
use super::schema::{self, BUSY_LIMIT, is_busy, store_error};
use super::time::{StoreClock, uneven, wall_us};
use super::tx::Tx;
use super::wake::Sockets;
use crate::backend::{Alarm, Moment};
use crate::error::{Error, ErrorKind, Result};
use rusqlite::Connection;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use tokio::sync::oneshot::error::TryRecvError;

/// How many transactions one visitor serves before he leaves the rest to the clerk.
const MOST_BATCHES: usize = 4;
/// How many pages are written to the log between two checkpoints.
const PAGES_PER_CHECKPOINT: u32 = 2000;
/// A write-ahead log of so many bytes is checkpointed when the file is opened.
const LONG_LOG: u64 = 4 << 20;
/// How long a look at the file's name is good for: it is a good part of a transaction.
const SEEN_LATELY: Duration = Duration::from_millis(5);
/// How long the clerk serves before he looks after other things.
const SHIFT: Duration = Duration::from_millis(50);
/// How long the clerk waits between two tries at a busy file, at first and at the most.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How long a checkpoint waits for other processes.
const CHECKPOINT_LIMIT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Desk {
    pub(super) path: PathBuf,
    pub(super) process: String,
    pub(super) clock: StoreClock,
    identity: Option<(u64, u64)>,
    /// When the file was last seen to be the same.
    seen: Mutex<Option<Moment>>,
    connection: Mutex<Connection>,
    queue: Mutex<VecDeque<Box<dyn Job>>>,
    /// Written to the log since the last checkpoint.
    pages: AtomicU32,
    /// Since when the file was found busy at every try.
    busy: Mutex<Option<Busy>>,
    /// How many of the next jobs are to have a transaction to themselves.
    alone: AtomicUsize,
    /// The claims of this process.
    pub(super) roll: Roll,
    pub(super) bell: Arc<Bell>,
    /// Where other processes that use the file are woken.
    pub(super) sockets: Sockets,
    /// Something of this process was broken by itself, which the version number does not show.
    mail: AtomicBool,
    /// How often the clerk looked after things, and gave signs of life.
    #[cfg(test)]
    pub(super) passes: std::sync::atomic::AtomicU64,
    #[cfg(test)]
    pub(super) beats: std::sync::atomic::AtomicU64,
}

/// A file that was found busy.
#[derive(Debug)]
struct Busy {
    tries_since: Moment,
    /// Since when nobody else was seen to commit, and the version number then.
    kept_since: Moment,
    version: Option<i64>,
}

/// How a visit to the desk went.
enum Served {
    All,
    /// Another process has the file.
    Busy,
}

impl Desk {
    pub(super) fn open(path: PathBuf, process: String) -> Result<Self> {
        let clock = StoreClock::of_this_machine();
        let connection = schema::open(&path, &clock)?;
        // Many short-lived processes, each of which commits little, must not leave it to one
        // another for ever.
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        let log_is_long = std::fs::metadata(log).is_ok_and(|log| log.len() > LONG_LOG);
        let sockets = Sockets::beside(&path);
        Ok(Self {
            identity: identity(&path).unwrap_or_default(),
            seen: Mutex::new(None),
            path,
            process,
            clock,
            connection: Mutex::new(connection),
            queue: Mutex::default(),
            pages: AtomicU32::new(if log_is_long { PAGES_PER_CHECKPOINT } else { 0 }),
            busy: Mutex::new(None),
            alone: AtomicUsize::new(0),
            roll: Roll::default(),
            bell: Arc::default(),
            sockets,
            mail: AtomicBool::new(false),
            #[cfg(test)]
            passes: Default::default(),
            #[cfg(test)]
            beats: Default::default(),
        })
    }

    /// Does `work` in a transaction and returns what it gave, once committed.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (job, answer) = job(work);
        lock(&self.queue).push_back(job);
        self.serve();
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// The same for the clerk, who may wait.
    pub(super) fn call_blocking<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (job, mut answer) = job(work);
        lock(&self.queue).push_back(job);
        loop {
            self.serve_patiently();
            match answer.try_recv() {
                Ok(outcome) => return outcome,
                Err(TryRecvError::Closed) => return Err(closed()),
                // Someone at the desk has taken the job along and is at it still.
                Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Serves everyone in the queue if the desk and the file are free.
    fn serve(&self) {
        for _ in 0..MOST_BATCHES {
            if lock(&self.queue).is_empty() {
                return;
            }
            if self.checkpoint_due() {
                break;
            }
            // Whoever has the connection looks at the queue again after letting go of it.
            let connection = match self.connection.try_lock() {
                Ok(connection) => connection,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if let Served::Busy = self.batch(&connection) {
                break;
            }
        }
        if !lock(&self.queue).is_empty() {
            self.bell.ring();
        }
    }

    /// Serves those in the queue, also while the file is busy; but not for so long that the clerk
    /// could do nothing else.
    pub(super) fn serve_patiently(&self) {
        let shift = Moment::now() + SHIFT;
        while self.has_jobs() && Moment::now() < shift {
            let connection = lock(&self.connection);
            let served = self.batch(&connection);
            // Before anything else, so that whoever comes from now on finds the desk free.
            drop(connection);
            if let Served::All = served {
                *lock(&self.busy) = None;
                if self.checkpoint_due() {
                    return;
                }
                continue;
            }
            match self.still_busy(Moment::now()) {
                Some(pause) => std::thread::sleep(pause),
                None => {
                    let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                    let error = rusqlite::Error::SqliteFailure(busy, None);
                    return self.fail_all(&store_error(&self.path, error));
                }
            }
        }
    }

    /// How long to wait before the next try at a busy file; `None` once a single process has kept
    /// it for too long. While there are commits of others the file is in demand, not kept.
    pub(super) fn still_busy(&self, now: Moment) -> Option<Duration> {
        let mut busy = lock(&self.busy);
        let Some(found) = &mut *busy else {
            *busy = Some(Busy { tries_since: now, kept_since: now, version: self.data_version() });
            return Some(FIRST_PAUSE);
        };
        if now.since(found.kept_since) >= BUSY_LIMIT {
            let version = self.data_version();
            if version.is_none() || version == found.version {
                *busy = None;
                return None;
            }
            (found.kept_since, found.version) = (now, version);
        }
        // The more want the file, the longer each waits, and the rarer are tries in vain.
        let pause = (now.since(found.tries_since) / 4).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        Some(pause.mul_f64(uneven()))
    }

    pub(super) fn has_jobs(&self) -> bool {
        !lock(&self.queue).is_empty()
    }

    /// One transaction for everyone who is waiting now.
    fn batch(&self, connection: &Connection) -> Served {
        if let Err(error) = self.still_the_same_file() {
            self.fail_all(&error);
            return Served::All;
        }
        let sent = Moment::now();
        match run(connection, "BEGIN IMMEDIATE") {
            Ok(()) => {}
            Err(error) if is_busy(&error) => return Served::Busy,
            Err(error) => {
                self.fail_all(&store_error(&self.path, error));
                return Served::All;
            }
        }
        let mut jobs = self.take_jobs();
        match self.attempt(connection, sent, jobs.make_contiguous()) {
            Ok(()) => jobs.into_iter().for_each(|job| job.finish(Ok(()))),
            Err(error) if jobs.len() == 1 => {
                let error = store_error(&self.path, error);
                jobs.into_iter().for_each(|job| job.finish(Err(again(&error))));
            }
            // One of them failed and took the others down with it: again, each alone.
            Err(_) => {
                let mut queue = lock(&self.queue);
                self.alone.store(jobs.len(), Ordering::Relaxed);
                jobs.into_iter().rev().for_each(|job| queue.push_front(job));
            }
        }
        Served::All
    }

    /// Everyone in the queue, or only the first while they are to be served alone.
    fn take_jobs(&self) -> VecDeque<Box<dyn Job>> {
        let mut queue = lock(&self.queue);
        match self.alone.load(Ordering::Relaxed) {
            0 => std::mem::take(&mut *queue),
            left => {
                self.alone.store(left - 1, Ordering::Relaxed);
                queue.pop_front().into_iter().collect()
            }
        }
    }

    /// Runs the jobs in the transaction that was begun, ends it, and wakes whom it granted.
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
            if !connection.is_autocommit() {
                run(connection, "ROLLBACK")?;
            }
            return outcome;
        }
        // About a page each.
        let pages = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        self.pages.fetch_add(pages, Ordering::Relaxed);
        for (name, turn) in tx.granted.into_inner() {
            let id = turn.id.clone();
            if !self.roll.tell(&id, Called::Granted(turn)) {
                // Whoever waited is gone with his runtime: nobody would give it back.
                let (removal, _) = job(move |tx: &Tx<'_>| tx.remove(&name, &id));
                lock(&self.queue).push_back(removal);
            }
        }
        for process in tx.concerned.into_inner() {
            self.sockets.wake(&process);
        }
        Ok(())
    }

    fn fail_all(&self, error: &Error) {
        let jobs = std::mem::take(&mut *lock(&self.queue));
        self.alone.store(0, Ordering::Relaxed);
        jobs.into_iter().for_each(|job| job.finish(Err(again(error))));
    }

    pub(super) fn checkpoint_due(&self) -> bool {
        self.pages.load(Ordering::Relaxed) >= PAGES_PER_CHECKPOINT
    }

    /// Moves the write-ahead log into the file; slow, for the clerk.
    pub(super) fn checkpoint(&self) {
        let connection = lock(&self.connection);
        // RESTART, and not PASSIVE, which never gets to the end of a log that others are writing
        // to: it would grow for ever. It waits a moment for them; if in vain, there is a next time.
        let done = connection
            .busy_timeout(CHECKPOINT_LIMIT)
            .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())));
        // Whatever came of it: a caller on an async thread must not wait inside SQLite.
        if let Err(error) = connection.busy_timeout(Duration::ZERO).and(done) {
            tracing::debug!(%error, "checkpoint not made");
        }
        self.pages.store(0, Ordering::Relaxed);
    }

    /// A number that changes when another process has committed something.
    pub(super) fn data_version(&self) -> Option<i64> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("PRAGMA data_version").ok()?;
        statement.query_row([], |row| row.get(0)).ok()
    }

    /// Reads without writing: works also while another process keeps the file.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        mut read: impl FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.look_at_once(&mut read) {
            Some(looked) => looked,
            // Someone is at the desk, perhaps for long: not for an async thread to wait.
            None => self.call(read).await,
        }
    }

    /// The same without waiting for the desk: `None` when it is taken.
    pub(super) fn look_at_once<T>(
        &self,
        read: impl FnOnce(&Tx<'_>) -> rusqlite::Result<T>,
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
        // Whoever came meanwhile found the desk taken.
        self.serve();
        Some(looked.map_err(|error| store_error(&self.path, error)))
    }

    fn transaction<'a>(&'a self, connection: &'a Connection, sent: Moment) -> Tx<'a> {
        Tx {
            connection,
            process: &self.process,
            now: self.clock.now_ms(),
            wall: wall_us(),
            sent,
            granted: RefCell::default(),
            concerned: RefCell::default(),
        }
    }

    pub(super) fn has_mail(&self) -> bool {
        Tx::has_mail(&lock(&self.connection), &self.process).unwrap_or(true)
    }

    /// Has the clerk look for mail although no other process wrote.
    pub(super) fn look_for_mail(&self) {
        self.mail.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    pub(super) fn told_to_look(&self) -> bool {
        self.mail.swap(false, Ordering::Relaxed)
    }

    /// Refuses to go on when the file was deleted or replaced: whoever opens it anew would see
    /// none of our claims.
    pub(super) fn still_the_same_file(&self) -> Result<()> {
        let now = Moment::now();
        let mut seen = lock(&self.seen);
        if seen.is_some_and(|seen| now.since(seen) < SEEN_LATELY) {
            return Ok(());
        }
        let found = identity(&self.path);
        if found.as_ref().is_ok_and(|found| *found == self.identity) {
            *seen = Some(now);
            return Ok(());
        }
        let shown = self.path.display();
        let unavailable = |what| Error::new(ErrorKind::Unavailable, what);
        Err(match found {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                unavailable(format!("{shown} is out of reach ({error}): make it accessible again"))
            }
            _ => unavailable(format!(
                "{shown} was deleted or replaced while in use: end every process that uses it and \
                 start anew"
            ))
            .lasting(),
        })
    }

    /// Says that the waiter's row is in the file, to be looked after by the clerk.
    pub(super) fn waiter_is_queued(&self, id: &str, until_expiry: Duration) {
        self.roll.waiter_is_queued(id, Moment::now() + until_expiry);
        self.bell.ring();
    }

    /// Keeps `alarm`, to be rung should the claim be broken.
    pub(super) fn watch(&self, id: &str, alarm: Alarm) {
        self.roll.watch(id, alarm);
        // After the roll has it: the clerk does it the other way round.
        if self.bell.fast_asleep.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(socket) = self.bell.socket() {
            socket.remove();
        }
        // So that the clerk sees that the desk is gone.
        self.bell.ring();
    }
}

/// Nothing that panics half-way through a change runs under these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

/// The same error once more: each of those who waited is told.
pub(super) fn again(error: &Error) -> Error {
    let copy = Error::new(error.kind(), error.to_string());
    if error.is_lasting() { copy.lasting() } else { copy }
}

#[cfg(unix)]
fn identity(path: &std::path::Path) -> std::io::Result<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map(|file| Some((file.dev(), file.ino())))
}

#[cfg(not(unix))]
fn identity(_: &std::path::Path) -> std::io::Result<Option<(u64, u64)>> {
    Ok(None) // Windows does not let an open file be replaced.
}
