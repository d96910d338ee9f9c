//! Several keepers that want the same name at the same time.

use super::stage::{CALM, Five, PATIENT, TTL};
use anyhow::{Result, ensure};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

cases!(three_contenders_on_five_nodes_make_progress);

/// Each of them may get two of five, again and again.
async fn three_contenders_on_five_nodes_make_progress(lab: &Lab) -> Result<()> {
    const EACH: usize = 40;
    let five = Five::start(lab)?;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut contenders = Vec::new();
    for _ in 0..3 {
        let (keeper, inside) = (five.keeper(CALM).await?, inside.clone());
        contenders.push(tokio::spawn(async move {
            let mut last = None;
            for _ in 0..EACH {
                let guard = keeper.lock("a").ttl(TTL).acquire_within(PATIENT).await?;
                let others = inside.fetch_add(1, Ordering::SeqCst);
                ensure!(others == 0, "{others} others are inside");
                ensure!(guard.token() > last, "{:?} after {last:?}", guard.token());
                last = guard.token();
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await?;
            }
            Ok(())
        }));
    }
    for contender in contenders {
        contender.await??;
    }
    Ok(())
}
