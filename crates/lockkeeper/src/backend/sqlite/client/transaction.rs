//! One transaction on the file, and the jobs that are done in it.
//!
//! A job is a function of a [`Transaction`]; what can be asked is in
//! [`requests`](super::super::requests). Jobs of several callers share a transaction where they
//! can, and each is told the outcome after the commit. A later job of a transaction sees what an
//! earlier one did, exactly as if each had had a transaction of its own.

use crate::backend::{FencingToken, Moment};
use crate::error::{Error, ErrorKind, Result};
use rusqlite::Connection;
use std::cell::RefCell;
use std::collections::BTreeSet;
use tokio::sync::oneshot;

/// One transaction, and what it needs to know. All requests of a transaction see the same time, so
/// whether a row has expired cannot change between two statements.
#[derive(Debug)]
pub(in super::super) struct Transaction<'a> {
    /// The connection on which the transaction was begun; requests neither commit nor roll back.
    pub(in super::super) connection: &'a Connection,
    /// The name of this process: rows with it are looked after here.
    pub(in super::super) process: &'a str,
    /// The file's time, in milliseconds.
    pub(in super::super) now: i64,
    /// The wall clock, in microseconds: for tokens.
    pub(in super::super) wall: i64,
    /// A moment before `now`: the validity of what is granted here counts from it, and so ends
    /// before the row expires.
    pub(in super::super) sent: Moment,
    /// Waiters of this process that were granted their claim, with its name: to be woken after the
    /// commit.
    pub(in super::super) granted: RefCell<Vec<(String, Granted)>>,
    /// Other processes that were handed something or had it broken, to be woken likewise.
    pub(in super::super) concerned: RefCell<BTreeSet<String>>,
}

/// A claim that holds its name. True once the transaction that made it is committed.
#[derive(Debug, Clone)]
pub(in super::super) struct Granted {
    pub(in super::super) id: String,
    /// The row's number: its place in the queue.
    pub(in super::super) ticket: i64,
    /// The fencing token. That of the ticket, or of the owner's first claim for an owner that
    /// entered again.
    pub(in super::super) token: FencingToken,
    /// When the transaction began that granted it.
    pub(in super::super) sent: Moment,
}

impl Transaction<'_> {
    /// A ticket and a token above `last`, the largest that the name ever had. Both are the same
    /// number, so that the order of the queue is the order of the tokens.
    pub(in super::super) fn next_ticket(&self, last: i64) -> (i64, FencingToken) {
        let unsigned = |number| u64::try_from(number).unwrap_or(0);
        let token = FencingToken::after(unsigned(last), unsigned(self.wall));
        (i64::try_from(token.get()).unwrap_or(i64::MAX), token)
    }
}

/// Something to be done in a transaction; run again from the start if that was rolled back.
pub(super) trait Job: Send + std::fmt::Debug {
    /// Does the work; may be called again after a rollback, and then replaces its own output.
    fn run(&mut self, tx: &Transaction<'_>) -> rusqlite::Result<()>;
    /// Tells the outcome, after the commit. Called at most once; a job that is dropped without it
    /// closes its channel, and the caller gets an error.
    fn finish(self: Box<Self>, outcome: Result<()>);
}

/// A function as a job: with what it returned, and where to send that. The output waits here until
/// the commit: an answer that was sent before it might be taken back.
struct Request<F, T> {
    work: F,
    output: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

/// The job of doing `work`, and where its outcome will arrive.
pub(super) fn job<T: Send + 'static>(
    work: impl FnMut(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
) -> (Box<dyn Job>, oneshot::Receiver<Result<T>>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(Request { work, output: None, reply }), answer)
}

impl<F, T> std::fmt::Debug for Request<F, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

impl<F, T> Job for Request<F, T>
where
    F: FnMut(&Transaction<'_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(&mut self, tx: &Transaction<'_>) -> rusqlite::Result<()> {
        self.output = Some((self.work)(tx)?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<()>) {
        let Self { output, reply, .. } = *self;
        let output = outcome.and_then(|()| output.ok_or_else(closed));
        // The caller may have gone; what was done stands, and the engine gives it back.
        let _ = reply.send(output);
    }
}

/// The error for a job that nobody will do any more.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the lock file was closed before it answered")
}

/// Runs a statement that returns nothing. Cached, because BEGIN and COMMIT would otherwise be
/// parsed for every lock.
pub(super) fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}
