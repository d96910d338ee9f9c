//! One look at a store, of which only numbers are kept: it may have more locks than memory has room for.

use super::prefixes::Prefixes;
use lockkeeper::backend::LockView;
use lockkeeper::{Error, Keeper};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// So many names are in memory at once, with those who hold them and wait for them.
const PAGE: usize = 1000;

/// What was seen.
#[derive(Debug)]
pub(super) struct Looked {
    /// The store without secrets.
    pub(super) store: String,
    pub(super) round_trip: Option<Duration>,
    pub(super) at: SystemTime,
    pub(super) took: Duration,
    /// As [`Prefixes::labels`].
    pub(super) groups: Vec<Group>,
}

/// The locks of one prefix.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) locks: usize,
    pub(super) held: usize,
    pub(super) waiting: usize,
    pub(super) oldest_hold: Duration,
    pub(super) oldest_wait: Duration,
}

pub(super) async fn take(keeper: &Keeper, prefixes: &Prefixes) -> Result<Looked, Error> {
    let begun = Instant::now();
    // Never takes much longer than a second: a store that is away is known before the list is asked for.
    let health = keeper.health().await;
    if let Some(error) = health.error {
        return Err(error);
    }
    let mut groups = vec![Group::default(); prefixes.len()];
    let mut after: Option<String> = None;
    loop {
        let page = keeper.list_page("", after.as_deref(), PAGE).await?;
        for view in &page.locks {
            groups[prefixes.of(view.name.as_str())].add(view);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(Looked {
        store: keeper.to_string(),
        round_trip: health.round_trip,
        at: SystemTime::now(),
        took: begun.elapsed(),
        groups,
    })
}

impl Group {
    fn add(&mut self, view: &LockView) {
        self.locks += 1;
        self.held += view.holders.len();
        self.waiting += view.waiters.len();
        let holds = view.holders.iter().map(|holder| holder.held_for);
        self.oldest_hold = holds.chain([self.oldest_hold]).max().unwrap_or_default();
        let waits = view.waiters.iter().map(|waiter| waiter.waiting_for);
        self.oldest_wait = waits.chain([self.oldest_wait]).max().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_is_counted_over_all_pages() {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        let names: Vec<String> = (0..PAGE * 2 + 7).map(|number| format!("a/{number}")).collect();
        let mut held = Vec::new();
        for name in &names {
            held.push(keeper.lock(name).acquire().await.unwrap());
        }
        for _ in 0..2 {
            held.push(keeper.rw_lock("r").read().acquire().await.unwrap());
        }
        let lock = keeper.lock("a/3");
        let waiter = tokio::spawn(async move { lock.acquire().await });
        while keeper.show("a/3").await.unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let prefixes = Prefixes::new(&["a/".to_owned()]).unwrap();
        let looked = take(&keeper, &prefixes).await.unwrap();
        let [all, other] = &looked.groups[..] else { panic!("{looked:?}") };
        assert_eq!((all.locks, all.held, all.waiting), (names.len(), names.len(), 1));
        assert!(all.oldest_hold >= all.oldest_wait, "{all:?}");
        assert!(all.oldest_wait >= Duration::from_millis(20), "{all:?}");
        assert_eq!((other.locks, other.held, other.waiting), (1, 2, 0));
        waiter.abort();
    }
}
