//! A server that a run may break.

use crate::server::{Kind, Lab, Plan, Program, Server};
use anyhow::Result;
use std::fmt;
use std::time::Duration;

/// A server that belongs to the run. Each call returns when it is done: after a restart the server
/// answers.
pub trait Breakable: fmt::Debug + Send {
    /// Ends it without warning.
    ///
    /// # Errors
    /// When that fails; the run is then worthless and stops. So with all that follow.
    fn kill(&mut self) -> Result<()>;

    /// Starts it again with what it had kept.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn restart(&mut self) -> Result<()>;

    /// Ends it, and starts it again with nothing.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn restart_empty(&mut self) -> Result<()>;

    /// Keeps a copy of what it has now.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when its data cannot be copied.
    fn keep_copy(&mut self) -> Result<()>;

    /// Ends it, and starts it again with the copy.
    ///
    /// # Errors
    /// As [`keep_copy`](Self::keep_copy).
    fn restart_as_kept(&mut self) -> Result<()>;

    /// Stops it where it stands.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn pause(&mut self) -> Result<()>;

    /// Lets it go on.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn resume(&mut self) -> Result<()>;

    /// Puts its clock ahead of ours by so much; zero puts it right.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when its clock cannot be set.
    fn clock_ahead(&mut self, by: Duration) -> Result<()>;
}

impl Breakable for Server {
    fn kill(&mut self) -> Result<()> {
        Server::kill(self)
    }

    fn restart(&mut self) -> Result<()> {
        Server::restart(self)
    }

    fn restart_empty(&mut self) -> Result<()> {
        Server::restart_empty(self)
    }

    fn keep_copy(&mut self) -> Result<()> {
        Server::keep_copy(self)
    }

    fn restart_as_kept(&mut self) -> Result<()> {
        Server::restart_as_kept(self)
    }

    fn pause(&mut self) -> Result<()> {
        Server::pause(self)
    }

    fn resume(&mut self) -> Result<()> {
        Server::resume(self)
    }

    fn clock_ahead(&mut self, by: Duration) -> Result<()> {
        self.set_clock_ahead(by)
    }
}

/// Starts a server that keeps what it is told over a kill, where it can.
pub(crate) fn start(lab: &Lab, kind: Kind, with_clock: bool) -> Result<Server> {
    kind.available()?;
    match kind {
        Kind::Redis => clocked(lab.redis().durable(), with_clock).start(),
        Kind::ZooKeeper => clocked(lab.zookeeper(), with_clock).start(),
        Kind::Postgres => clocked(lab.postgres(), with_clock).start(),
        Kind::MariaDb => clocked(lab.mariadb(), with_clock).start(),
        Kind::Memcached => clocked(lab.memcached(), with_clock).start(),
        Kind::Etcd => clocked(lab.etcd(), with_clock).start(),
    }
}

/// How long a session with it lasts in a run, where claims go with their sessions: a client that
/// is killed must make way while the run still looks.
pub(crate) fn session(kind: Kind) -> Option<&'static str> {
    matches!(kind, Kind::ZooKeeper | Kind::Etcd).then_some("2s")
}

fn clocked<P: Program + Clone + 'static>(plan: Plan<P>, with_clock: bool) -> Plan<P> {
    if with_clock { plan.clock() } else { plan }
}
