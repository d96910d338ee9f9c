//! Whether the runtime that a connection lives on still runs.

use std::sync::Arc;
use tokio::runtime::{Handle, Id};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Ends with the runtime it was begun on, or with its last clone.
///
/// A request that reaches a connection while its runtime ends is neither sent nor refused: the
/// task that would do either is gone. So a request is raced with this:
/// [`unless_ended`](Self::unless_ended).
#[derive(Debug, Clone)]
pub(crate) struct Life {
    runtime: Id,
    ended: CancellationToken,
    _needed: Arc<DropGuard>,
}

impl Life {
    /// That of the runtime it is called on.
    pub(crate) fn begin() -> Self {
        let (ended, unneeded) = (CancellationToken::new(), CancellationToken::new());
        let ends = ended.clone().drop_guard();
        let needed = unneeded.clone().drop_guard();
        tokio::spawn(async move {
            let _ends = ends;
            unneeded.cancelled().await;
        });
        Self { runtime: Handle::current().id(), ended, _needed: Arc::new(needed) }
    }

    /// Resolves when the runtime ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// What `work` on such a connection comes to; `None` when the runtime ends first. Then it is
    /// not known whether the work was done.
    ///
    /// On that very runtime there is no race: the work ends with it.
    pub(crate) async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        if Handle::try_current().is_ok_and(|current| current.id() == self.runtime) {
            return Some(work.await);
        }
        tokio::select! {
            biased;
            output = work => Some(output),
            () = self.ended() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_its_runtime() {
        let short = tokio::runtime::Runtime::new().unwrap();
        let life = short.block_on(async { Life::begin() });
        assert!(!life.ended.is_cancelled());
        let other = tokio::runtime::Runtime::new().unwrap();
        assert_eq!(other.block_on(life.unless_ended(async { 7 })), Some(7));
        drop(short);
        assert!(life.ended.is_cancelled());
        assert_eq!(other.block_on(life.unless_ended(std::future::pending::<()>())), None);
    }
}
