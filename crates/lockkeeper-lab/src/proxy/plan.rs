//! What a proxy is told to do.

use std::time::Duration;

/// One way along a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// What the client says.
    ToServer = 0,
    /// What the server says.
    ToClient = 1,
}

impl Direction {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];
}

/// What becomes of the bytes of one direction. They never change their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They pass so much later, and up to `jitter` more.
    Delay {
        /// At least.
        base: Duration,
        /// The most that is added, chosen by the seed.
        jitter: Duration,
    },
    /// They are kept until this changes, then delivered.
    Hold,
    /// So many bytes pass at a time.
    Drip {
        /// How many; none counts as one.
        bytes: usize,
        /// How often.
        every: Duration,
    },
    /// They are swallowed, and so is the end of the stream; the connection stays open.
    ///
    /// A stream of TCP never has a hole: when this ends, connections that lost something are
    /// reset, as real ones are that were cut off for too long. The others go on.
    Swallow,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one who connected.
    Client,
    /// The one who was connected to.
    Server,
}

/// What counts as one reply of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Framing {
    /// Whatever arrives at once: one read of at most 16 KiB. A server that answers each request
    /// with one small write, and a client that waits for it, make that one reply.
    #[default]
    Burst,
    /// One whole top-level value of the Redis protocol, however it arrives. Pushes of RESP3 (`>`)
    /// do not count; messages to subscribers in RESP2 look like replies and do. A stream that
    /// turns out to be something else is counted by bursts from there on.
    Resp,
}

/// How a stream goes on behind a swallowed reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// As if nothing were missing. No network does this to a client; a proxy that loses its
    /// memory might.
    GoOn,
    /// Nothing more reaches the client on this connection, which is reset by
    /// [`heal`](super::Control::heal).
    Silence,
}

/// Which reply is to be swallowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ambush {
    /// How many replies are still to pass.
    pub(super) passing: u64,
    pub(super) afterwards: Afterwards,
}

/// The orders in force. What is done once is a number that grows: a connection compares it with
/// what it was when it began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    /// How often what was held back was let go.
    pub(super) releases: u64,
    pub(super) flows: [Flow; 2],
    pub(super) refuse: bool,
    pub(super) resets: u64,
    /// Every connection that `side` is to lose, by [`Side`].
    pub(super) forgets: [u64; 2],
    pub(super) heals: u64,
    pub(super) stop: bool,
}
