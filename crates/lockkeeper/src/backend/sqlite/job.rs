//! What is asked of the desk.

use super::tx::Tx;
use crate::error::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

/// Something to be done in a transaction; run again from the start if that was rolled back.
pub(super) trait Job: Send + std::fmt::Debug {
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()>;
    /// Tells the outcome, after the commit.
    fn finish(self: Box<Self>, outcome: Result<()>);
}

struct Request<F, T> {
    work: F,
    output: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

/// The job of doing `work`, and where its outcome will arrive.
pub(super) fn job<T: Send + 'static>(
    work: impl FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
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
    F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()> {
        self.output = Some((self.work)(tx)?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<()>) {
        let Self { output, reply, .. } = *self;
        let output = outcome.and_then(|()| output.ok_or_else(closed));
        // The caller may have gone; what was done stands, and he sees to it.
        let _ = reply.send(output);
    }
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the lock file was closed before it answered")
}
