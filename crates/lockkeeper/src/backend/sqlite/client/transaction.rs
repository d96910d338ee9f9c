//! One transaction on the file, and the jobs that are done in it.
//!
//! A job is a function of a [`Transaction`]; what can be asked is in
//! [`requests`](super::super::requests). Jobs of several callers share a transaction where they
//! can, and each hears of the outcome after the commit.

use crate::backend::{FencingToken, Moment};
use crate::error::{Error, ErrorKind, Result};
use rusqlite::Connection;
use std::cell::RefCell;
use std::collections::BTreeSet;
use tokio::sync::oneshot;

/// One transaction, and what it needs to know.
#[derive(Debug)]
pub(in super::super) struct Transaction<'a> {
    pub(in super::super) connection: &'a Connection,
    /// Which rows are ours.
    pub(in super::super) process: &'a str,
    /// The file's time, in milliseconds.
    pub(in super::super) now: i64,
    /// The wall clock, in microseconds: for tokens.
    pub(in super::super) wall: i64,
    /// A moment before `now`: the validity of what is granted here counts from it.
    pub(in super::super) sent: Moment,
    /// Waiters of this process that were granted their claim, with its name: to be woken after the
    /// commit.
    pub(in super::super) granted: RefCell<Vec<(String, Granted)>>,
    /// Other processes that were handed something or had it broken, to be woken likewise.
    pub(in super::super) concerned: RefCell<BTreeSet<String>>,
}

/// A claim that holds its name.
#[derive(Debug, Clone)]
pub(in super::super) struct Granted {
    pub(in super::super) id: String,
    /// The row's number: its place in the queue.
    pub(in super::super) ticket: i64,
    pub(in super::super) token: FencingToken,
    /// When the transaction began that granted it.
    pub(in super::super) sent: Moment,
}

impl Transaction<'_> {
    /// A ticket and a token above `last`, the largest that the name ever had.
    pub(in super::super) fn next_ticket(&self, last: i64) -> (i64, FencingToken) {
        let unsigned = |number| u64::try_from(number).unwrap_or(0);
        let token = FencingToken::after(unsigned(last), unsigned(self.wall));
        (i64::try_from(token.get()).unwrap_or(i64::MAX), token)
    }
}

/// Something to be done in a transaction; run again from the start if that was rolled back.
pub(super) trait Job: Send + std::fmt::Debug {
    fn run(&mut self, tx: &Transaction<'_>) -> rusqlite::Result<()>;
    /// Tells the outcome, after the commit.
    fn finish(self: Box<Self>, outcome: Result<()>);
}

/// A function as a job: with what it returned, and where to send that.
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

/// Runs a statement that returns nothing.
pub(super) fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}
