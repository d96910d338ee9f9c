//! What a proxy is told to do.

use std::time::Duration;

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    ToServer = 0,
    /// From the server to the client.
    ToClient = 1,
}

impl Direction {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];
}

/// What happens to the bytes of one direction. They are never reordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They pass after `base`, plus up to `jitter`.
    Delay {
        /// The minimum delay.
        base: Duration,
        /// The most that is added, chosen by the seed.
        jitter: Duration,
    },
    /// They are kept until the flow changes, then delivered.
    Hold,
    /// A few bytes pass at a time.
    Drip {
        /// How many; zero counts as one.
        bytes: usize,
        /// How often.
        every: Duration,
    },
    /// They are swallowed, and so is the end of the stream; the connection stays open.
    ///
    /// A TCP stream never has a hole: when this flow ends, connections that lost something are
    /// reset, as real ones are after a long outage. The others go on.
    Swallow,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// What counts as one reply from the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Framing {
    /// Whatever one read of at most 16 KiB returns. If the server answers each request with one
    /// small write, and the client waits for it, that is one reply.
    #[default]
    Burst,
    /// One whole top-level value of the Redis protocol, however it is split. RESP3 pushes (`>`) do
    /// not count; RESP2 messages to subscribers look like replies and do count. A stream that turns
    /// out not to be RESP is counted by bursts from there on.
    Resp,
}

/// How a stream continues after a swallowed reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// As if nothing were missing. No network does this to a client; a broken proxy might.
    GoOn,
    /// Nothing more reaches the client on this connection, which is reset by
    /// [`heal`](super::Control::heal).
    Silence,
}

/// Which reply to swallow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ambush {
    /// How many replies are still to pass.
    pub(super) passing: u64,
    pub(super) afterwards: Afterwards,
}

/// The orders in force. A one-time order is a counter: a connection compares it with the value it
/// had when the connection began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    /// How often held bytes were let go.
    pub(super) releases: u64,
    pub(super) flows: [Flow; 2],
    pub(super) refuse: bool,
    pub(super) resets: u64,
    /// Counts the orders to close one side of every connection, by [`Side`].
    pub(super) forgets: [u64; 2],
    pub(super) heals: u64,
    pub(super) stop: bool,
}
