//! How a quorum counts votes.

use std::time::Duration;

/// How long a node's answer is waited for, unless said otherwise.
pub(super) const TIMEOUT: Duration = Duration::from_millis(50);

/// For how long a node must have been up before it votes, at least, unless said otherwise.
pub(super) const MIN_UPTIME: Duration = Duration::from_secs(30);

/// How a [`Quorum`](super::Quorum) counts votes.
///
/// ```
/// use lockkeeper::backend::quorum::QuorumOptions;
/// use std::time::Duration;
///
/// let mut options = QuorumOptions::default();
/// options.timeout = Duration::from_millis(20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumOptions {
    /// How long a node's answer is waited for before it counts as silent: far below the ttl of any
    /// claim. The nodes are asked all at once, so only when too few answer is it waited for so long.
    pub timeout: Duration,
    /// For how long a node must have been up before it votes, unless it remembers claims over a
    /// restart: at least the longest ttl that anybody uses with these nodes. `None` is the longest
    /// that this keeper has used, and half a minute at least; zero lets every node vote at once, which
    /// is **unsafe** with nodes that forget.
    pub min_uptime: Option<Duration>,
    /// Whether grants carry fencing tokens, where the nodes can keep them.
    pub token: bool,
}

impl Default for QuorumOptions {
    fn default() -> Self {
        Self { timeout: TIMEOUT, min_uptime: None, token: true }
    }
}
