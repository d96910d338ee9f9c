//! What can be broken, and what that requires.

use clap::ValueEnum;

/// What can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Fault {
    /// A client process is killed, and replaced by a new one.
    Kill,
    /// A client process is asked to end by TERM, ends in the midst of its work, and is replaced.
    Stop,
    /// A client process is stopped for longer than its ttl.
    Pause,
    /// One of two runtimes that a client process uses its keeper on ends, with all that is under way
    /// on it, and is replaced.
    RuntimeEnd,
    /// A thread that stands for a process is blocked for longer than its ttl.
    Stall,
    /// A process is cut off from the store for longer than its ttl; nobody is told.
    Partition,
    /// The same in one direction, whichever the dice say.
    OneWay,
    /// The connections of a process are reset.
    Reset,
    /// The store does what a process asks and its reply is lost.
    LostReply,
    /// What a process and the store say is held back for longer than its ttl, then delivered.
    Late,
    /// The way to the store is slow for a while.
    Latency,
    /// The server is killed and started again with its data.
    ServerKill,
    /// The server is killed and started again without its data.
    ServerRestartEmpty,
    /// The server is killed and started again with the data of half a second before: what it granted
    /// or renewed since is lost, so claims may overlap. For what comes after it.
    RestartOldSnapshot,
    /// The server, or one of its members in turn, is stopped for longer than the ttl.
    ServerPause,
    /// The disk of the server hangs for longer than the ttl.
    DiskHang,
    /// The primary is killed, a replica is promoted by the sentinels, and the old primary follows.
    Failover,
    /// One of the sentinels names a server that is the primary no more.
    StaleSentinel,
    /// Clients are told of grants that the server never made.
    ForgedMessage,
    /// The clock of the server goes ahead by more than the ttl for a while, and back.
    ClockJump,
}

/// What a fault requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Processes,
    Threads,
    Network,
    Server,
}

impl Fault {
    /// Its name in a history and on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Stop => "stop",
            Fault::Pause => "pause",
            Fault::RuntimeEnd => "runtime-end",
            Fault::Stall => "stall",
            Fault::Partition => "partition",
            Fault::OneWay => "one-way",
            Fault::Reset => "reset",
            Fault::LostReply => "lost-reply",
            Fault::Late => "late",
            Fault::Latency => "latency",
            Fault::ServerKill => "server-kill",
            Fault::ServerRestartEmpty => "server-restart-empty",
            Fault::RestartOldSnapshot => "restart-old-snapshot",
            Fault::ServerPause => "server-pause",
            Fault::DiskHang => "disk-hang",
            Fault::Failover => "failover",
            Fault::StaleSentinel => "stale-sentinel",
            Fault::ForgedMessage => "forged-message",
            Fault::ClockJump => "clock-jump",
        }
    }

    pub(crate) fn needs(self) -> Needs {
        match self {
            Fault::Kill | Fault::Stop | Fault::Pause | Fault::RuntimeEnd => Needs::Processes,
            Fault::Stall => Needs::Threads,
            Fault::Partition
            | Fault::OneWay
            | Fault::Reset
            | Fault::LostReply
            | Fault::Late
            | Fault::Latency => Needs::Network,
            Fault::ServerKill
            | Fault::ServerRestartEmpty
            | Fault::RestartOldSnapshot
            | Fault::ServerPause
            | Fault::DiskHang
            | Fault::Failover
            | Fault::StaleSentinel
            | Fault::ForgedMessage
            | Fault::ClockJump => Needs::Server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_command_line() {
        for fault in Fault::value_variants() {
            let value = fault.to_possible_value().expect("none is hidden");
            assert_eq!(value.get_name(), fault.word());
        }
    }
}
