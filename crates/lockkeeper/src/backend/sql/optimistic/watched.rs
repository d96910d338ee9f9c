//! The versions of other holders that a keeper has seen, and since when they stand still.

use crate::backend::support::sync::lock;
use crate::backend::{Moment, Name};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// How many names are remembered; the longest unseen are forgotten first, and cost their waiters
/// for them one more lease.
const MOST: usize = 10_000;

/// By name.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<Name, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    version: i64,
    first: Moment,
    last: Moment,
}

impl Watched {
    /// Notes the version that was just read, and says whether it has been the same for a whole
    /// lease. Called after the answer, so that a holder counts from an earlier moment.
    pub(super) fn stood_still(&self, name: &Name, version: i64, lease: Duration) -> bool {
        let now = Moment::now();
        let mut watched = lock(&self.0);
        if watched.len() >= MOST && !watched.contains_key(name) {
            let oldest = watched.iter().min_by_key(|(_, seen)| seen.last);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                watched.remove(&oldest);
            }
        }
        let fresh = Seen { version, first: now, last: now };
        let seen = watched.entry(name.clone()).or_insert(fresh);
        if seen.version != version {
            *seen = fresh;
        }
        seen.last = now;
        now.since(seen.first) >= lease
    }

    /// The name is ours now.
    pub(super) fn forget(&self, name: &Name) {
        lock(&self.0).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_version_that_stood_still_for_a_lease_may_be_replaced() {
        let (watched, name) = (Watched::default(), Name::new("a").unwrap());
        let lease = Duration::from_secs(10);
        let wait = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        assert!(!watched.stood_still(&name, 1, lease), "seen for the first time");
        wait(9).await;
        assert!(!watched.stood_still(&name, 1, lease), "a second too soon");
        assert!(!watched.stood_still(&name, 2, lease), "renewed");
        wait(9).await;
        assert!(!watched.stood_still(&name, 2, lease), "counted from the old version");
        wait(1).await;
        assert!(watched.stood_still(&name, 2, lease));
        watched.forget(&name);
        assert!(!watched.stood_still(&name, 2, lease), "it was forgotten");
    }
}
