//! One member of three that is behind without knowing: nobody believes what it alone says.

use crate::servers::leader;
use crate::{LONG, PATIENT, cases, etcdctl, eventually, queue_of, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::{Guard, Keeper};
use lockkeeper_lab::server::{Lab, Server};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

cases!(
    a_leader_whose_disk_hangs_keeps_nobody_holding,
    a_waiter_at_a_member_whose_disk_hangs_is_woken,
);

/// Needs no disk that hangs.
pub(crate) mod paused {
    use super::*;

    cases!(a_deposed_leader_that_wakes_for_a_moment_is_not_believed);

    async fn a_deposed_leader_that_wakes_for_a_moment_is_not_believed(lab: &Lab) -> Result<()> {
        let servers = lab.etcd().start_group(3)?;
        let (one, others) = apart(&servers)?;
        let next = connect(&others, "session=8s").await?;
        let mut claims = Vec::new();
        // Whether one of them has a heartbeat on its way at the moment is up to chance.
        for number in 0..8 {
            let keeper = connect(&[one], "session=8s&timeout=1s").await?;
            claims.push(Claims::new(&keeper, &next, &format!("woken/{number}")).await?);
            tokio::time::sleep(Duration::from_millis(130)).await;
        }
        one.pause()?;
        tokio::time::sleep(Duration::from_millis(6200)).await;
        one.resume()?;
        tokio::time::sleep(Duration::from_millis(30)).await;
        one.pause()?;
        let granted = exclude(&mut claims, Duration::from_secs(20)).await;
        one.resume()?;
        ensure!(granted? == claims.len(), "some were not granted although their session ended");
        Ok(())
    }
}

/// One holds a name and another waits for it.
struct Claims {
    name: String,
    held: Guard,
    next: Option<JoinHandle<lockkeeper::Result<Guard>>>,
    granted: Option<Guard>,
}

impl Claims {
    async fn new(one: &Keeper, other: &Keeper, name: &str) -> Result<Self> {
        let held = one.lock(name).ttl(LONG).acquire().await?;
        let next = waiting(other, name);
        queue_of(other, name, 1).await;
        Ok(Self { name: name.to_owned(), held, next: Some(next), granted: None })
    }

    /// Whether it was granted to the one who waits. If so, the other must know by now.
    async fn is_granted(&mut self) -> Result<bool> {
        if let Some(next) = self.next.take_if(|next| next.is_finished()) {
            self.granted = Some(next.await??);
        }
        let Some(granted) = &self.granted else { return Ok(false) };
        ensure!(!(self.held.is_held() && granted.is_held()), "two hold {}", self.name);
        Ok(true)
    }
}

/// Looks until all who wait were granted what they wait for, or the time is over; how many were.
async fn exclude(claims: &mut [Claims], limit: Duration) -> Result<usize> {
    let begin = Instant::now();
    loop {
        let mut granted = 0;
        for claim in &mut *claims {
            granted += usize::from(claim.is_granted().await?);
        }
        if granted == claims.len() || begin.elapsed() > limit {
            return Ok(granted);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The leader, and the others.
fn apart(servers: &[Server]) -> Result<(&Server, Vec<&Server>)> {
    let leader = leader(servers)?;
    Ok((leader, servers.iter().filter(|server| server.port() != leader.port()).collect()))
}

async fn connect(servers: &[&Server], options: &str) -> Result<Keeper> {
    let hosts: Vec<String> = servers.iter().map(|server| server.address()).collect();
    Ok(lockkeeper::connect(&format!("etcd://{}?{options}", hosts.join(","))).await?)
}

async fn a_leader_whose_disk_hangs_keeps_nobody_holding(lab: &Lab) -> Result<()> {
    let servers = lab.etcd().hanging_disk().start_group(3)?;
    let (one, others) = apart(&servers)?;
    let all: Vec<&Server> = std::iter::once(one).chain(others.iter().copied()).collect();
    let knows_all = connect(&all, "session=4s").await?;
    let knows_one = connect(&[one], "session=4s").await?;
    let next = connect(&others, "session=4s").await?;
    let mut claims = [
        Claims::new(&knows_one, &next, "hung/one").await?,
        Claims::new(&knows_all, &next, "hung/all").await?,
    ];
    // What is not on the disk yet would let a leader hang that could say nothing more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    one.hang_disk()?;
    // What has to be written down is what the leader gets stuck with.
    eventually("another leads", async || Ok(etcdctl(others[0], &["put", "a", "b"]).ok())).await;
    exclude(&mut claims[..1], PATIENT).await?;
    exclude(&mut claims, Duration::from_secs(4)).await?;
    one.mend_disk()?;
    exclude(&mut claims, Duration::from_secs(2)).await?;
    ensure!(claims[0].granted.is_some(), "the claim of a session that ended was not passed on");
    let [_, Claims { held, next, granted, .. }] = claims;
    // Who knows the others too may have gone on there.
    if let (Some(next), None) = (next, granted) {
        ensure!(held.is_held(), "lost, and not granted to who waits: {:?}", held.lost_reason());
        held.release().await?;
        next.await??.release().await?;
    }
    Ok(())
}

async fn a_waiter_at_a_member_whose_disk_hangs_is_woken(lab: &Lab) -> Result<()> {
    let servers = lab.etcd().hanging_disk().start_group(3)?;
    let (leader, followers) = apart(&servers)?;
    let stuck = followers[0];
    let one = connect(&[leader], "session=60s").await?;
    let two = connect(&[stuck, leader], "session=60s").await?;
    let held = one.lock("asleep").ttl(LONG).acquire().await?;
    let next = waiting(&two, "asleep");
    queue_of(&one, "asleep", 1).await;
    stuck.hang_disk()?;
    let begin = Instant::now();
    held.release().await?;
    let woken = tokio::time::timeout(PATIENT, next).await;
    let after = begin.elapsed();
    stuck.mend_disk()?;
    woken.context("it was not woken at all")???.release().await?;
    // The look that everyone takes every ten seconds is for what nobody thought of.
    ensure!(after < Duration::from_secs(8), "woken only after {after:?}");
    Ok(())
}
