//! What a proxy has done, so that a test can tell whether a fault had an effect.

use super::Direction;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much a proxy forwarded, and how much it did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were reset.
    pub resets: u64,
    /// Connections whose end was hidden from one side.
    pub half_open: u64,
    /// Bytes that reached the server.
    pub bytes_to_server: u64,
    /// Bytes that reached the client.
    pub bytes_to_client: u64,
    /// Bytes for the server that were swallowed.
    pub swallowed_to_server: u64,
    /// Bytes for the client that were swallowed.
    pub swallowed_to_client: u64,
    /// Bytes, either way, that were delayed, held back or dripped.
    pub hindered: u64,
    /// Replies of the server: see [`Framing`](super::Framing).
    pub replies: u64,
    /// Replies that were swallowed by [`swallow_reply`](super::Control::swallow_reply).
    pub replies_swallowed: u64,
}

impl Counters {
    /// How often the proxy did anything but forward. Grows if and only if a fault had an effect.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.resets
            + self.half_open
            + self.swallowed_to_server
            + self.swallowed_to_client
            + self.hindered
            + self.replies_swallowed
    }
}

/// The live counters.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connections: AtomicU64,
    pub(super) resets: AtomicU64,
    pub(super) half_open: AtomicU64,
    passed: [AtomicU64; 2],
    swallowed: [AtomicU64; 2],
    hindered: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) replies_swallowed: AtomicU64,
}

pub(super) fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

impl Tally {
    pub(super) fn passed(&self, direction: Direction, bytes: usize) {
        self.passed[direction as usize].fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(super) fn swallowed(&self, direction: Direction, bytes: usize) {
        self.swallowed[direction as usize].fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(super) fn hindered(&self, bytes: usize) {
        self.hindered.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(super) fn read(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let [bytes_to_server, bytes_to_client] = [get(&self.passed[0]), get(&self.passed[1])];
        Counters {
            connections: get(&self.connections),
            resets: get(&self.resets),
            half_open: get(&self.half_open),
            bytes_to_server,
            bytes_to_client,
            swallowed_to_server: get(&self.swallowed[0]),
            swallowed_to_client: get(&self.swallowed[1]),
            hindered: get(&self.hindered),
            replies: get(&self.replies),
            replies_swallowed: get(&self.replies_swallowed),
        }
    }
}
