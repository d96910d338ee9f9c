//! Injects a fault, and ends it.

use super::breakable::Breakable;
use super::fault::Fault;
use super::member::Member;
use super::network::Network;
use crate::dice::Dice;
use crate::proxy::{Afterwards, Direction, Flow};
use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a partition or a paused server may last until it was felt.
const PATIENCE: Duration = Duration::from_secs(20);

/// A fault that is about to happen.
pub(crate) struct Strike<'a> {
    pub(crate) fault: Fault,
    pub(crate) ttl: Duration,
    pub(crate) dice: &'a mut Dice,
    /// Whether a partition or a paused server was felt: neither ends before, since how long that takes
    /// is a matter of how busy the machine is.
    pub(crate) felt: &'a dyn Fn() -> bool,
}

impl Strike<'_> {
    /// Longer than a claim lasts without renewal.
    fn beyond_ttl(&mut self) -> Duration {
        self.ttl + self.ttl / 4 + self.up_to(self.ttl / 2)
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.dice.roll(u64::try_from(most.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Injects a fault into one process, except a kill. Returns whether it had an effect.
    pub(crate) fn at_member(mut self, victim: &Member) -> Result<bool> {
        match self.fault {
            Fault::Pause => {
                victim.signal(Signal::SIGSTOP)?;
                sleep(self.beyond_ttl());
                victim.signal(Signal::SIGCONT)?;
                Ok(true)
            }
            Fault::RuntimeEnd => {
                victim.end_runtime()?;
                sleep(self.ttl / 2);
                Ok(true)
            }
            Fault::Stall => {
                victim.stall(self.beyond_ttl())?;
                Ok(true)
            }
            _ => {
                let network = victim.network.as_ref().context("the process has no network")?;
                let before = network.hits();
                self.at_network(network);
                let felt = network.hits() > before;
                network.each(|proxy| proxy.heal());
                Ok(felt)
            }
        }
    }

    fn at_network(&mut self, network: &Network) {
        match self.fault {
            Fault::OneWay => {
                let roll = self.dice.roll(2) == 0;
                let way = if roll { Direction::ToServer } else { Direction::ToClient };
                network.each(|proxy| proxy.set(way, Flow::Swallow));
                sleep(self.beyond_ttl());
            }
            Fault::Reset => {
                network.each(|proxy| proxy.reset());
                sleep(self.ttl / 2);
            }
            Fault::LostReply => {
                let before = network.replies_swallowed();
                let nth = 1 + self.dice.roll(3);
                network.each(|proxy| proxy.swallow_reply(nth, Afterwards::Silence));
                let patience = Instant::now() + 2 * self.ttl;
                while network.replies_swallowed() == before && Instant::now() < patience {
                    sleep(Duration::from_millis(1));
                }
                sleep(self.ttl / 2);
            }
            Fault::Late => {
                network.each(|proxy| proxy.set_both(Flow::Hold));
                sleep(self.beyond_ttl());
            }
            Fault::Latency => {
                let (base, jitter) = (self.ttl / 50, self.ttl / 10);
                network.each(|proxy| proxy.set_both(Flow::Delay { base, jitter }));
                sleep(self.beyond_ttl());
            }
            _ => {
                network.each(|proxy| proxy.partition());
                self.last_until_felt();
            }
        }
    }

    /// Sleeps longer than a claim lasts, and until the fault was felt, or the patience is over.
    fn last_until_felt(&mut self) {
        let end = Instant::now() + PATIENCE;
        sleep(self.beyond_ttl());
        while !(self.felt)() && Instant::now() < end {
            sleep(Duration::from_millis(100));
        }
    }

    /// Injects a fault into the server. Returns whether it had an effect.
    pub(crate) fn at_server(mut self, server: &mut dyn Breakable) -> Result<bool> {
        if self.fault == Fault::ForgedMessage {
            return server.forge(self.beyond_ttl());
        }
        self.break_server(server)?;
        Ok(true)
    }

    fn break_server(&mut self, server: &mut dyn Breakable) -> Result<()> {
        match self.fault {
            Fault::Failover => server.fail_over(),
            Fault::StaleSentinel => server.mislead_sentinel(),
            Fault::ServerKill => {
                server.kill()?;
                sleep(self.up_to(self.ttl / 2));
                server.restart()?;
                sleep(self.ttl / 2);
                Ok(())
            }
            Fault::ServerRestartEmpty => {
                server.restart_empty()?;
                sleep(self.ttl / 2);
                Ok(())
            }
            Fault::RestartOldSnapshot => {
                server.keep_copy()?;
                sleep(Duration::from_millis(500));
                server.restart_as_kept()?;
                sleep(self.ttl / 2);
                Ok(())
            }
            Fault::ServerPause => {
                server.pause()?;
                self.last_until_felt();
                server.resume()
            }
            Fault::DiskHang => {
                server.hang_disk()?;
                sleep(self.beyond_ttl());
                server.mend_disk()
            }
            _ => {
                server.clock_ahead(2 * self.ttl)?;
                sleep(self.ttl / 2);
                server.clock_ahead(Duration::ZERO)
            }
        }
    }
}
