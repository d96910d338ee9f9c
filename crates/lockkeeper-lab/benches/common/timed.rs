//! Cycles by several tasks at once.

use anyhow::Result;
use std::time::{Duration, Instant};

/// The time per cycle when `tasks` tasks do `cycles` cycles each.
pub(crate) async fn timed<W, F>(tasks: u32, cycles: u32, work: W) -> Result<Duration>
where
    W: Fn(u32) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let begin = Instant::now();
    let task = |number: u32| {
        let work = work.clone();
        tokio::spawn(async move {
            for _ in 0..cycles {
                work(number).await?;
            }
            anyhow::Ok(())
        })
    };
    let all: Vec<_> = (0..tasks).map(task).collect();
    for task in all {
        task.await??;
    }
    Ok(begin.elapsed() / (tasks * cycles))
}
