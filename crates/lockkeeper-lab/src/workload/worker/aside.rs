//! A second runtime on which a process uses the same keeper, and which ends in the middle of its
//! work: with waiters, holders and releases in progress.

use super::{Shared, client};
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Builder;

/// How often it checks whether everything must stop.
const GLANCE: Duration = Duration::from_millis(20);

/// Runs the ordered number of tasks, on one second runtime after another, until told to stop.
pub(super) async fn work(shared: &Arc<Shared>) -> Result<()> {
    let orders = &shared.post.orders;
    if orders.aside == 0 {
        return Ok(());
    }
    let mut first = orders.clients;
    loop {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let tasks: Vec<_> = (first..first + orders.aside)
            .map(|task| runtime.spawn(client(shared.clone(), task)))
            .collect();
        first += orders.aside;
        let ended = tokio::select! {
            () = shared.end_aside.notified() => true,
            () = until_stopped(shared) => false,
        };
        if !ended {
            for task in tasks {
                task.await??;
            }
        }
        // A plain drop would block on its threads, which a task must not do.
        runtime.shutdown_background();
        if !ended {
            return Ok(());
        }
    }
}

async fn until_stopped(shared: &Shared) {
    while !shared.stop.load(Ordering::SeqCst) {
        tokio::time::sleep(GLANCE).await;
    }
}
