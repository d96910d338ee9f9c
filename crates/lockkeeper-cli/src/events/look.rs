//! One look at all locks.

use lockkeeper::backend::{LockView, Page};
use lockkeeper::{Keeper, Result};
use std::collections::BTreeMap;
use std::time::SystemTime;
use tokio::time::Instant;

/// So many holders and waiters are kept in memory, and no more.
pub(crate) const MOST_CLAIMS: usize = 100_000;

/// What was seen.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) at: SystemTime,
    /// For spans.
    pub(crate) moment: Instant,
    /// By name.
    pub(crate) locks: BTreeMap<String, LockView>,
    /// There was more than is kept.
    pub(crate) is_cut: bool,
}

pub(crate) async fn take(keeper: &Keeper, prefix: &str) -> Result<Look> {
    let (mut locks, mut claims) = (BTreeMap::new(), 0);
    let mut after: Option<String> = None;
    let is_cut = loop {
        let page = keeper.list_page(prefix, after.as_deref(), Page::MOST).await?;
        for view in page.locks {
            claims += view.holders.len() + view.waiters.len();
            if claims > MOST_CLAIMS {
                break;
            }
            // One that comes twice was last seen as the second has it.
            locks.insert(view.name.to_string(), view);
        }
        after = page.next;
        if claims > MOST_CLAIMS || after.is_none() {
            break claims > MOST_CLAIMS;
        }
    };
    Ok(Look { at: SystemTime::now(), moment: Instant::now(), locks, is_cut })
}
