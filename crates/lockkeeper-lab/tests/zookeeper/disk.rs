//! Three servers, of which the disk of one hangs.

use crate::ensemble::leader;
use crate::{LONG, PATIENT, cases, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::Guard;
use lockkeeper_lab::server::{Lab, Server};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

cases![
    while_the_disk_of_the_leader_hangs_one_holds_at_a_time,
    while_the_disk_of_a_follower_hangs_one_holds_at_a_time,
];

const SESSION: Duration = Duration::from_secs(4);
/// Longer than a session and all that a server may take to notice.
const HANG: Duration = Duration::from_secs(8);

/// What those who take turns tell of each other.
#[derive(Default)]
struct Table {
    inside: Mutex<Vec<Arc<Guard>>>,
    taken: AtomicUsize,
    done: AtomicBool,
}

impl Table {
    /// Sits down; an error if another is there that may believe that it holds the lock.
    fn enter(&self, guard: &Arc<Guard>) -> Result<()> {
        let mut inside = self.inside.lock().expect("nobody panics");
        let both = inside.iter().find(|other| other.is_held() && guard.is_held());
        let both = both.map(|other| (other.token(), other.remaining()));
        inside.push(guard.clone());
        self.taken.fetch_add(1, Ordering::SeqCst);
        ensure!(both.is_none(), "{:?} holds it beside {both:?}", guard.token());
        Ok(())
    }

    fn leave(&self, guard: Arc<Guard>) -> Result<Guard> {
        self.inside.lock().expect("nobody panics").retain(|other| !Arc::ptr_eq(other, &guard));
        Arc::into_inner(guard).context("someone else has the guard")
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

async fn while_the_disk_of_the_leader_hangs_one_holds_at_a_time(lab: &Lab) -> Result<()> {
    let servers = lab.zookeeper().tick(500).hanging_disk().start_ensemble(3)?;
    let slow = leader(&servers)?;
    one_at_a_time(&servers, slow).await
}

async fn while_the_disk_of_a_follower_hangs_one_holds_at_a_time(lab: &Lab) -> Result<()> {
    let servers = lab.zookeeper().tick(500).hanging_disk().start_ensemble(3)?;
    let first = leader(&servers)?.port();
    let slow = servers.iter().find(|server| server.port() != first).context("nobody follows")?;
    one_at_a_time(&servers, slow).await
}

/// One keeper stays with the server whose disk hangs, two may go where they like.
async fn one_at_a_time(servers: &[Server], slow: &Server) -> Result<()> {
    let table = Arc::new(Table::default());
    let mut tasks = Vec::new();
    let lone = format!("zookeeper://{}", slow.address());
    for url in [lone, servers[0].url(), servers[1].url()] {
        let keeper = keeper(&url, &format!("session={}s", SESSION.as_secs())).await?;
        let table = table.clone();
        tasks.push(tokio::spawn(async move {
            let mut stay = 2;
            while !table.done.load(Ordering::SeqCst) {
                // An outage is an answer here; what is judged is what was granted.
                let Ok(guard) = keeper.lock("n").ttl(LONG).acquire_within(PATIENT).await else {
                    continue;
                };
                let guard = Arc::new(guard);
                table.enter(&guard)?;
                // Short ones and long ones, some of them across renewals.
                stay = if stay > 2000 { 2 } else { stay * 3 };
                tokio::time::sleep(Duration::from_millis(stay)).await;
                let _ = table.leave(guard)?.release().await;
            }
            anyhow::Ok(())
        }));
    }
    for _ in 0..2 {
        let before = table.taken();
        slow.hang_disk()?;
        tokio::time::sleep(HANG).await;
        let during = table.taken();
        slow.mend_disk()?;
        ensure!(during > before, "nobody was let in while one disk of three hung");
        tokio::time::sleep(SESSION).await;
        ensure!(table.taken() > during, "nobody was let in after it");
    }
    table.done.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await??;
    }
    Ok(())
}
