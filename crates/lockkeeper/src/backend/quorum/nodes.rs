//! All nodes of a quorum, and what everything that is done with them shares.

use super::node::{Node, Since};
use super::options::{MIN_UPTIME, QuorumOptions};
use super::round::Round;
use super::tokens::Tokens;
use super::turns::Turns;
use crate::backend::{Backend, Background, Claim, Moment};
use crate::error::{Error, ErrorKind};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// All nodes of a quorum.
pub(super) struct Nodes {
    pub(super) all: Arc<[Arc<Node>]>,
    pub(super) options: QuorumOptions,
    pub(super) tokens: Tokens,
    pub(super) turns: Arc<Turns>,
    pub(super) way: TokenWay,
    /// Whether a claim can pass to another of this keeper: at every node.
    pub(super) passes: bool,
    background: OnceLock<Background>,
    /// The longest ttl that was asked for, in milliseconds.
    longest: AtomicU64,
    /// The shortest ttl for which a warning was given, in milliseconds.
    warned: AtomicU64,
    /// The store for people, without secrets.
    shown: String,
}

/// How tokens are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenWay {
    /// Not at all.
    None,
    /// Every node is a [`Voter`](crate::backend::Voter) and keeps a floor.
    Floors,
    /// Every node can count.
    Sequences,
}

impl Nodes {
    pub(super) fn new(
        backends: Vec<Arc<dyn Backend>>,
        options: QuorumOptions,
        shown: Option<String>,
    ) -> Self {
        let way = match options.token {
            true if backends.iter().all(|backend| backend.voter().is_some()) => TokenWay::Floors,
            true if backends.iter().all(|backend| backend.sequencer().is_some()) => {
                TokenWay::Sequences
            }
            _ => TokenWay::None,
        };
        let passing = |backend: &Arc<dyn Backend>| backend.voter()?.passing().map(|_| ());
        let passes = backends.iter().all(|backend| passing(backend).is_some());
        let shown = shown.unwrap_or_else(|| {
            let nodes: Vec<_> = backends.iter().map(ToString::to_string).collect();
            format!("quorum of {}", nodes.join(", "))
        });
        let ids = Arc::new(Mutex::new(vec![None; backends.len()]));
        let numbered = backends.into_iter().enumerate();
        let all = numbered.map(|(number, backend)| Node::new(backend, number, ids.clone()));
        let (tokens, turns, background, longest) = Default::default();
        let warned = AtomicU64::new(u64::MAX);
        Self {
            all: all.collect(),
            options,
            tokens,
            turns,
            way,
            passes,
            background,
            longest,
            warned,
            shown,
        }
    }

    /// How many votes decide: more than half.
    pub(super) fn majority(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// Where work goes on that nobody waits for.
    pub(super) fn background(&self) -> &Background {
        self.background.get_or_init(Background::new)
    }

    pub(super) fn attach(&self, background: &Background) {
        // Once, by the keeper.
        let _ = self.background.set(background.clone());
    }

    /// A question to many nodes, whose answers count for as long as a vote's.
    pub(super) fn round<T: Send + 'static>(&self) -> Round<T> {
        Round::new(Moment::now() + self.options.timeout)
    }

    /// A question about a claim that is held. An answer is of use whenever it comes: a renewal counts
    /// from its sending, and a claim is to be given back however long that takes. So where a majority
    /// has not answered yet, it is waited for longer than for a vote.
    pub(super) fn patient_round<T: Send + 'static>(&self, claim: &Claim) -> Round<T> {
        let limit = (self.options.timeout * 20).min(claim.ttl / 4).max(self.options.timeout);
        Round::new(Moment::now() + limit)
    }

    /// From when on a vote for the claim counts that is asked for now.
    pub(super) fn since_now(&self, claim: &Claim) -> Since {
        let millis = u64::try_from(claim.ttl.as_millis()).unwrap_or(u64::MAX);
        let longest = self.longest.fetch_max(millis, Ordering::Relaxed).max(millis);
        self.warn_of_timeout(claim.ttl, millis);
        let least_uptime = self.options.min_uptime.unwrap_or_else(|| self.of_longest(longest));
        Since { sent: Moment::now(), least_uptime }
    }

    /// For how long a node must have been up, as far as is known without a claim.
    pub(super) fn least_uptime(&self) -> Duration {
        let longest = self.longest.load(Ordering::Relaxed);
        self.options.min_uptime.unwrap_or_else(|| self.of_longest(longest))
    }

    fn of_longest(&self, millis: u64) -> Duration {
        Duration::from_millis(millis).max(MIN_UPTIME)
    }

    /// Says what a majority of so few is worth.
    pub(super) fn warn_of_few(&self) {
        let worth = match self.all.len() {
            1 => "a majority of one is the one: if it fails, nobody gets a lock",
            2 => "a majority of two is both: if either fails, nobody gets a lock",
            _ => return,
        };
        tracing::warn!(store = self.shown, "{worth}; name three or five");
    }

    /// A grant counts from before the question: what a slow node takes is taken off the ttl.
    fn warn_of_timeout(&self, ttl: Duration, millis: u64) {
        if ttl < self.options.timeout * 10
            && millis < self.warned.fetch_min(millis, Ordering::Relaxed)
        {
            tracing::warn!(
                store = self.shown,
                ?ttl,
                timeout = ?self.options.timeout,
                "a node's answer may be waited for for much of the ttl: shorten timeout, or \
                 lengthen the ttl"
            );
        }
    }

    /// The error for too few votes.
    pub(super) fn too_few(&self, yes: usize, reasons: &[(usize, String)]) -> Error {
        let (all, majority) = (self.all.len(), self.majority());
        let said: Vec<_> = reasons
            .iter()
            .map(|(number, why)| format!("{}: {why}", self.all[*number].shown))
            .collect();
        let message = format!(
            "{yes} of {all} nodes can vote for it, and {majority} must: bring back those that \
             cannot"
        );
        Error::new(ErrorKind::Unavailable, message).with("nodes", said.join("; "))
    }

    /// The error for votes that came to nothing, because too few nodes took the token.
    pub(super) fn too_slow(&self) -> Error {
        let message = format!(
            "a majority voted for it, and too few of them took its token within {:?}: ask again, or \
             lengthen timeout",
            self.options.timeout
        );
        Error::new(ErrorKind::Unavailable, message)
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("all", &self.all).finish_non_exhaustive()
    }
}
