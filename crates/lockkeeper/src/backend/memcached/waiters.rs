//! This keeper's waiting claims, and what wakes them.
//!
//! memcached tells nobody of a release, so somebody has to ask again and again. Of the claims of a
//! keeper that wait for one name only the first does; the others wait behind it, in the order they
//! came. So a thousand cost the server as much as one. A release by the same keeper wakes the first at
//! once.

use crate::backend::Moment;
use crate::backend::support::sync::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// By key.
#[derive(Debug, Default)]
pub(super) struct Waiters(Arc<Mutex<HashMap<String, Line>>>);

/// Those who wait for one name.
#[derive(Debug)]
struct Line {
    waiting: VecDeque<Arc<Notify>>,
    /// When the store last answered the first of them.
    heard: Moment,
}

/// A place in the line, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    lines: Arc<Mutex<HashMap<String, Line>>>,
    key: String,
    wake: Arc<Notify>,
}

impl Waiters {
    /// Whether anyone of this keeper waits for the name.
    pub(super) fn any(&self, key: &str) -> bool {
        lock(&self.0).contains_key(key)
    }

    /// The last place in the line.
    pub(super) fn join(&self, key: &str) -> Turn {
        let wake = Arc::new(Notify::new());
        let mut lines = lock(&self.0);
        let line = lines
            .entry(key.to_owned())
            .or_insert_with(|| Line { waiting: VecDeque::new(), heard: Moment::now() });
        line.waiting.push_back(wake.clone());
        Turn { lines: self.0.clone(), key: key.to_owned(), wake }
    }

    /// Says that the name was just given back.
    pub(super) fn released(&self, key: &str) {
        if let Some(first) = lock(&self.0).get(key).and_then(|line| line.waiting.front()) {
            first.notify_one();
        }
    }
}

impl Turn {
    /// Whether it is this one's turn to ask.
    pub(super) fn is_first(&self) -> bool {
        let lines = lock(&self.lines);
        let first = lines.get(&self.key).and_then(|line| line.waiting.front());
        first.is_some_and(|first| Arc::ptr_eq(first, &self.wake))
    }

    /// Resolves when it may be this one's turn, or when the first hears of a release.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Says that the store answered.
    pub(super) fn heard(&self) {
        if let Some(line) = lock(&self.lines).get_mut(&self.key) {
            line.heard = Moment::now();
        }
    }

    /// When the store last answered the first of the line.
    pub(super) fn last_heard(&self) -> Moment {
        lock(&self.lines).get(&self.key).map_or_else(Moment::now, |line| line.heard)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = lock(&self.lines);
        let Some(line) = lines.get_mut(&self.key) else { return };
        let was_first = line.waiting.front().is_some_and(|it| Arc::ptr_eq(it, &self.wake));
        line.waiting.retain(|it| !Arc::ptr_eq(it, &self.wake));
        match line.waiting.front() {
            Some(next) if was_first => next.notify_one(),
            Some(_) => {}
            None => drop(lines.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn is_woken(turn: &Turn) -> bool {
        timeout(Duration::from_millis(20), turn.woken()).await.is_ok()
    }

    #[tokio::test]
    async fn one_asks_and_the_next_takes_over() {
        let waiters = Waiters::default();
        let (first, second, third) = (waiters.join("k"), waiters.join("k"), waiters.join("k"));
        assert!(first.is_first() && !second.is_first() && waiters.any("k"));
        waiters.released("k");
        assert!(is_woken(&first).await && !is_woken(&second).await);
        drop(second);
        assert!(!is_woken(&third).await, "one in the middle left, and the last was woken");
        drop(first);
        assert!(is_woken(&third).await && third.is_first());
        drop(third);
        assert!(!waiters.any("k"), "an empty line was left");
    }
}
