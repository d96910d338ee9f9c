//! A Redis cluster.

use super::redis::Redis;
use super::redis_replicated::{linked, patiently};
use crate::server::handle::Server;
use crate::server::plan::Plan;
use anyhow::{Context, Result, bail};

/// The number of masters; each has one replica.
const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// Three masters with a replica each.
#[derive(Debug)]
pub struct Cluster {
    /// The initial masters, then their replicas in the same order.
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// The master of a slot, according to the node `asked`; `None` if that node knows no master
    /// that answers.
    ///
    /// # Errors
    /// When the node does not answer.
    pub fn master_of(&self, slot: u16, asked: &Server) -> Result<Option<&Server>> {
        let said = asked.redis()?.ask(&["CLUSTER", "SLOTS"])?;
        for range in said.list().unwrap_or_default() {
            let Some([first, last, master, ..]) = range.list() else { continue };
            let within = first.number() <= Some(slot.into()) && Some(slot.into()) <= last.number();
            if within {
                let port = master.list().and_then(|master| master.get(1)?.number());
                return Ok(self.nodes.iter().find(|node| Some(node.port().into()) == port));
            }
        }
        Ok(None)
    }

    /// Waits until these nodes agree that every slot is served.
    ///
    /// # Errors
    /// When they do not within a minute.
    pub fn await_all_slots<'a>(&self, nodes: impl IntoIterator<Item = &'a Server>) -> Result<()> {
        for node in nodes {
            patiently("the cluster serves every slot", || {
                let said = node.redis()?.ask(&["CLUSTER", "INFO"])?;
                let said = said.text().unwrap_or_default();
                let states = ["cluster_state:ok", "cluster_slots_ok:16384"];
                if states.iter().all(|state| said.lines().any(|line| line.trim() == *state)) {
                    return Ok(());
                }
                bail!("{} says\n{said}", node.address())
            })?;
        }
        Ok(())
    }
}

impl Plan<Redis> {
    /// Starts three masters with a replica each, and waits until all slots are served and all
    /// replicas follow. A node counts as failed after a second of silence.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_cluster(mut self) -> Result<Cluster> {
        self.program.cluster = true;
        let cluster = Cluster { nodes: self.start_many(2 * MASTERS)? };
        let (masters, replicas) = cluster.nodes.split_at(MASTERS);
        for (number, master) in masters.iter().enumerate() {
            let first = SLOTS * number / MASTERS;
            let last = SLOTS * (number + 1) / MASTERS - 1;
            let mut redis = master.redis()?;
            redis.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()])?;
            // Different epochs from the beginning, so that the nodes need not resolve a conflict.
            redis.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        }
        let meet = || -> Result<()> {
            for node in &cluster.nodes[1..] {
                let bus = node.place().ports().last().context("a port for the bus")?.to_string();
                let port = node.port().to_string();
                masters[0].redis()?.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
            }
            Ok(())
        };
        meet()?;
        for (master, replica) in masters.iter().zip(replicas) {
            let id = master.redis()?.ask(&["CLUSTER", "MYID"])?;
            let id = id.text().context("an id")?.to_owned();
            patiently("a node knows its master", || {
                let known = replica.redis()?.ask(&["CLUSTER", "REPLICATE", &id]);
                // On a busy machine a handshake between nodes can time out.
                known.or_else(|error| meet().and(Err(error)))
            })?;
        }
        cluster.await_all_slots(&cluster.nodes)?;
        for replica in replicas {
            patiently("a replica follows its master", || {
                linked(&replica.redis()?.info("replication")?)
            })?;
        }
        for node in &cluster.nodes {
            patiently("every node knows every replica", || {
                let said = node.redis()?.ask(&["CLUSTER", "NODES"])?;
                let known = said.text().unwrap_or_default().matches("slave").count();
                if known == MASTERS { Ok(()) } else { bail!("{} knows {known}", node.address()) }
            })?;
        }
        Ok(cluster)
    }
}
