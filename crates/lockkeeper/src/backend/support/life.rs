//! Whether the runtime that a connection lives on still runs.

use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Ends with the runtime it was begun on, or with its last clone.
///
/// A request that reaches a connection while its runtime ends is neither sent nor refused: the
/// task that would do either is gone. Whoever asks waits for this as well.
#[derive(Debug, Clone)]
pub(crate) struct Life {
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
        Self { ended, _needed: Arc::new(needed) }
    }

    /// Resolves when the runtime ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
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
        drop(short);
        assert!(life.ended.is_cancelled());
    }
}
