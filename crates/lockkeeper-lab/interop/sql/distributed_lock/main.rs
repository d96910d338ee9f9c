//! The crate `distributed-lock`, commanded by lines; see the module `interop` of the lab for the
//! commands. It knows `bench` only, with how many tasks do it at once behind it.

use distributed_lock_core::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_mysql::MySqlLockProvider;
use distributed_lock_postgres::PostgresLockProvider;
use std::error::Error;
use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Not without a limit, which it takes for an error on MariaDB.
const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("no URL")?.replace("mariadb://", "mysql://");
    if url.starts_with("mysql") {
        serve(MySqlLockProvider::new(url).await?).await
    } else {
        serve(PostgresLockProvider::new(url).await?).await
    }
}

async fn serve<P>(provider: P) -> Result<(), Box<dyn Error>>
where
    P: LockProvider,
    P::Lock: Send + Sync + 'static,
    <P::Lock as DistributedLock>::Handle: Send,
{
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["bench", name, rounds, tasks @ ..] = &words[..] else { break };
        let rounds: u32 = rounds.parse()?;
        let tasks: u32 = tasks.first().map_or(Ok(1), |tasks| tasks.parse())?;
        let lock = Arc::new(provider.create_lock(name));
        let begin = Instant::now();
        let running: Vec<_> = (0..tasks)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move {
                    for _ in 0..rounds {
                        let held = lock.acquire(LIMIT).await.map_err(|it| it.to_string())?;
                        held.release().await.map_err(|it| it.to_string())?;
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        let mut failed = None;
        for task in running {
            failed = task.await?.err().or(failed);
        }
        match failed {
            Some(error) => println!("error {error}"),
            None => println!("took {}", begin.elapsed().as_secs_f64()),
        }
    }
    Ok(())
}
