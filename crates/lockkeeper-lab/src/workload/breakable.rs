//! A server that a run may break.

use super::fault::Fault;
use super::groups::{self, Guarded, Sharded};
use super::url;
use crate::server::{Fitness, Kind, Lab, Plan, Program, Server};
use crate::stores;
use anyhow::{Result, bail};
use std::fmt;
use std::time::Duration;

const UNFIT: &str = "these servers cannot be broken this way: leave out the fault, or --members";

/// A server, or several, that belong to the run. A fault that an implementation does not override
/// is not supported. Each call returns when it is done: after a restart the server answers.
pub trait Breakable: fmt::Debug + Send {
    /// Kills it.
    ///
    /// # Errors
    /// When that fails; the run is then worthless and stops. The same holds for all that follow.
    fn kill(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Starts it again with the data it had kept.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn restart(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Kills it, and starts it again without data.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn restart_empty(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Copies its current data.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when its data cannot be copied.
    fn keep_copy(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Kills it, and starts it again with the copy.
    ///
    /// # Errors
    /// As [`keep_copy`](Self::keep_copy).
    fn restart_as_kept(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Pauses it.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn pause(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Resumes it.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn resume(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Makes its disk hang: nothing is written, nothing fails.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when it is on a disk that cannot hang.
    fn hang_disk(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Resumes its disk.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    fn mend_disk(&mut self) -> Result<()> {
        bail!(UNFIT)
    }

    /// Sets its clock ahead of ours; zero sets it right.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when its clock cannot be set.
    fn clock_ahead(&mut self, by: Duration) -> Result<()> {
        let _ = by;
        bail!(UNFIT)
    }

    /// Promotes a replica in place of the primary, which then follows it.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when there is no replica to promote.
    fn fail_over(&mut self) -> Result<()> {
        bail!("a failover needs sentinels: --server redis --members 3")
    }

    /// Makes one of the sentinels name the wrong primary for a while.
    ///
    /// # Errors
    /// As [`fail_over`](Self::fail_over).
    fn mislead_sentinel(&mut self) -> Result<()> {
        bail!("there is no sentinel: --server redis --members 3")
    }

    /// Sends clients forged messages; returns whether there was anything to forge.
    ///
    /// # Errors
    /// As [`kill`](Self::kill); also when only the server can send clients messages.
    fn forge(&mut self, length: Duration) -> Result<bool> {
        let _ = length;
        bail!("messages can be forged at one Redis alone: --server redis")
    }
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

    fn hang_disk(&mut self) -> Result<()> {
        Server::hang_disk(self)
    }

    fn mend_disk(&mut self) -> Result<()> {
        Server::mend_disk(self)
    }

    fn clock_ahead(&mut self, by: Duration) -> Result<()> {
        self.set_clock_ahead(by)
    }

    fn forge(&mut self, length: Duration) -> Result<bool> {
        groups::forge(self, length)
    }
}

/// Servers that vote. Each fault is done to one of them, the next one each time. No member can be
/// restarted empty or with an old copy: a member that forgot its votes breaks the protocol.
#[derive(Debug)]
struct Members {
    servers: Vec<Server>,
    victim: usize,
}

impl Members {
    /// The next member, which becomes the victim.
    fn next(&mut self) -> &Server {
        self.victim = (self.victim + 1) % self.servers.len();
        self.victim()
    }

    /// The current victim.
    fn victim(&self) -> &Server {
        &self.servers[self.victim]
    }
}

impl Breakable for Members {
    fn kill(&mut self) -> Result<()> {
        self.next().kill()
    }

    fn restart(&mut self) -> Result<()> {
        self.victim().restart()
    }

    fn pause(&mut self) -> Result<()> {
        self.next().pause()
    }

    fn resume(&mut self) -> Result<()> {
        self.victim().resume()
    }

    fn hang_disk(&mut self) -> Result<()> {
        self.next().hang_disk()
    }

    fn mend_disk(&mut self) -> Result<()> {
        self.victim().mend_disk()
    }

    fn clock_ahead(&mut self, by: Duration) -> Result<()> {
        self.servers.iter().try_for_each(|server| server.set_clock_ahead(by))
    }
}

/// Starts a server that keeps acknowledged writes over a kill, if it can, and that supports these
/// faults; as a group if more than one member is requested. Also returns its URL.
pub(crate) fn start(
    lab: &Lab,
    kind: Kind,
    members: usize,
    faults: &[Fault],
) -> Result<(Box<dyn Breakable>, String)> {
    kind.available()?;
    if kind == Kind::Redis && members > 1 {
        let redis = || fit(lab.redis().durable(), faults);
        return match members {
            3 => {
                let group = Guarded::new(redis().start_sentinel(2)?, redis().start()?);
                let url = group.url(faults.contains(&Fault::Failover));
                Ok((Box::new(group), url))
            }
            6 => {
                let group = Sharded::new(redis().start_cluster()?);
                let url = group.url();
                Ok((Box::new(group), url))
            }
            _ => bail!("--members of redis is 3 for sentinels, 6 for a cluster"),
        };
    }
    if members > 1 {
        let servers = match kind {
            Kind::ZooKeeper => fit(lab.zookeeper(), faults).start_ensemble(members)?,
            Kind::Etcd => fit(lab.etcd(), faults).start_group(members)?,
            _ => bail!("--members is for servers that vote: zookeeper and etcd, not {kind}"),
        };
        let url = servers[0].url();
        return Ok((Box::new(Members { servers, victim: 0 }), url));
    }
    let server = lab.start_fit(kind, fitness(faults))?;
    let url = server.url();
    Ok((Box::new(server), url))
}

/// Starts one server that keeps acknowledged writes over a kill, if it can. Also returns its URL, with
/// the session timeout of a run.
pub(crate) fn start_alone(lab: &Lab, kind: Kind) -> Result<(Box<dyn Breakable>, String)> {
    let (server, url) = start(lab, kind, 1, &[])?;
    let url = match session(kind) {
        Some(session) => url::with_option(&url, "session", session)?,
        None => url,
    };
    Ok((server, url))
}

/// The session timeout that a run uses with it.
pub(crate) fn session(kind: Kind) -> Option<&'static str> {
    stores::of(kind)?.session
}

fn fitness(faults: &[Fault]) -> Fitness {
    let (clock, disk) = (faults.contains(&Fault::ClockJump), faults.contains(&Fault::DiskHang));
    Fitness { durable: true, clock, hanging_disk: disk }
}

fn fit<P: Program + Clone + 'static>(plan: Plan<P>, faults: &[Fault]) -> Plan<P> {
    fitness(faults).of(plan)
}
