//! The claims of one keeper that wait for one name, in their order: only the first of them waits in
//! the server, so that a crowd in one process takes one connection there.

use crate::backend::support::sync::lock;
use crate::backend::{Name, Patience};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::OwnedMutexGuard;

type Line = Arc<tokio::sync::Mutex<()>>;

/// By name; an entry goes with the last who waits.
#[derive(Debug, Default)]
pub(super) struct Lanes(Arc<Mutex<HashMap<Name, Line>>>);

/// The first place in a lane.
pub(super) struct Lane {
    lanes: Arc<Mutex<HashMap<Name, Line>>>,
    name: Name,
    /// `None` only while it is dropped.
    first: Option<OwnedMutexGuard<()>>,
}

impl Lanes {
    /// Waits to be the first; `None` when patience ran out before.
    pub(super) async fn enter(&self, name: &Name, patience: &Patience) -> Option<Lane> {
        let line = lock(&self.0).entry(name.clone()).or_default().clone();
        let mut lane = Lane { lanes: self.0.clone(), name: name.clone(), first: None };
        // Granted in the order in which it was asked for.
        let entered = line.clone().lock_owned();
        tokio::pin!(entered);
        let first = tokio::select! {
            biased;
            first = &mut entered => Some(first),
            () = std::future::ready(()) => None,
        };
        let first = match first {
            Some(first) => first,
            None => {
                patience.queued(0);
                tokio::select! {
                    biased;
                    first = &mut entered => first,
                    () = patience.over() => return None,
                }
            }
        };
        lane.first = Some(first);
        drop(line);
        Some(lane)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.first = None;
        let mut lanes = lock(&self.lanes);
        // Each waiter has a share of the line.
        if lanes.get(&self.name).is_some_and(|line| Arc::strong_count(line) == 1) {
            lanes.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Moment;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn they_go_one_by_one_in_their_order_and_leave_nothing() {
        let lanes = Arc::new(Lanes::default());
        let name = Name::new("a").unwrap();
        let first = lanes.enter(&name, &Patience::endless()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..3 {
            let (lanes, name, order) = (lanes.clone(), name.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _lane = lanes.enter(&name, &Patience::endless()).await;
                lock(&order).push(number);
            }));
            tokio::task::yield_now().await;
        }
        let brief = Patience::until(Some(Moment::now() + Duration::from_millis(5)));
        assert!(lanes.enter(&name, &brief).await.is_none(), "it is not the first");
        assert!(lock(&order).is_empty());
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*lock(&order), [0, 1, 2]);
        assert!(lock(&lanes.0).is_empty(), "a line without anyone is kept");
    }
}
