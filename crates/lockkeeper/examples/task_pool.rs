//! A pool of tasks from which many workers draw: no task is drawn twice.
//!
//! The pool is a plain file that knows nothing of locking: a worker reads it, takes the first
//! line and writes the rest back. Without the lock, two would take the same line.
//!
//! `cargo run -p lockkeeper --example task_pool [-- --store URL]`

mod support;

use lockkeeper::Keeper;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::Story;

const TASKS: usize = 20;
const WORKERS: usize = 4;

/// The first task of the pool, which is then one shorter.
async fn draw(keeper: &Keeper, pool: &Path) -> lockkeeper::Result<Option<String>> {
    let guard = keeper.lock("examples/task-pool").acquire().await?;
    let tasks = std::fs::read_to_string(pool).expect("the pool can be read");
    let Some((first, rest)) = tasks.split_once('\n') else { return Ok(None) };
    // Time enough for another to read the same line, were it not for the lock.
    tokio::time::sleep(Duration::from_millis(2)).await;
    std::fs::write(pool, rest).expect("the pool can be written");
    guard.release().await?;
    Ok(Some(first.to_owned()))
}

async fn work(keeper: Keeper, pool: PathBuf, worker: usize, story: Story) -> Vec<String> {
    let mut done = Vec::new();
    while let Some(task) = draw(&keeper, &pool).await.expect("the store answers") {
        story.tell(&format!("worker {worker} draws {task}"));
        tokio::time::sleep(Duration::from_millis(20)).await;
        done.push(task);
    }
    done
}

#[tokio::main]
async fn main() -> lockkeeper::Result<()> {
    let story = Story::begin(&format!("{WORKERS} workers draw from a pool of {TASKS} tasks."));
    let store = lockkeeper::open(&support::store()).await?;
    let pool = std::env::temp_dir().join(format!("lockkeeper-pool-{}", std::process::id()));
    let tasks: String = (1..=TASKS).map(|number| format!("task {number}\n")).collect();
    std::fs::write(&pool, tasks).expect("the pool can be written");
    let mut workers = Vec::new();
    for worker in 1..=WORKERS {
        let keeper = Keeper::new(store.clone())?;
        workers.push(tokio::spawn(work(keeper, pool.clone(), worker, story)));
    }
    let mut drawn = Vec::new();
    for worker in workers {
        drawn.extend(worker.await.expect("no worker panicked"));
    }
    std::fs::remove_file(&pool).expect("the pool can be removed");
    let different: HashSet<_> = drawn.iter().collect();
    assert_eq!((drawn.len(), different.len()), (TASKS, TASKS));
    story.tell(&format!("{} tasks drawn, each once", drawn.len()));
    Ok(())
}
