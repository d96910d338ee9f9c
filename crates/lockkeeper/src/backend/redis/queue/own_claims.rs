//! Which claims this keeper has, from before they are asked for until they are given back.
//!
//! Redis may name other claims as this keeper's, *strays*: those of a task that ended with its
//! runtime, or that a server restarted from an old snapshot, or a replica that took over, has on
//! record again. They wait, or hold the name, for nobody, and are removed when they are noticed.
//!
//! ```text
//!   enter ── Owned lives: asked for, waits, held ── dropped: a stray from now on
//!                │                                    │
//!                └─ detach(ttl): stays in Redis  ─────┘ after that time
//! ```
//!
//! Noticed by whom: by this keeper's own heartbeat, which lists its claims; or by another keeper's,
//! which asks "whose is this?" by a message.

use crate::backend::Moment;
use crate::backend::support::sync::lock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The claims of one keeper, by their ids.
#[derive(Debug, Default)]
pub(super) struct OwnClaims {
    /// How often each is entered: a claim that was granted here may be entered again by its ticket, and
    /// is this keeper's until both have left.
    ids: Mutex<HashMap<String, usize>>,
    /// Detached claims, which stay in Redis although no task has them: until when.
    detached: Mutex<HashMap<String, Moment>>,
}

impl OwnClaims {
    /// Enters a claim before it is asked for, so that whatever the store has of it is known here.
    pub(super) fn enter(self: &Arc<Self>, id: &str) -> Arc<Owned> {
        *lock(&self.ids).entry(id.to_owned()).or_default() += 1;
        Arc::new(Owned { claims: self.clone(), id: id.to_owned() })
    }

    /// Those of `ids` that this keeper does not have. What Redis knows of was entered here before it
    /// was asked for, so one that is not here now has ended, whenever Redis was asked.
    pub(super) fn strays<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
        let (owned, detached, now) = (lock(&self.ids), lock(&self.detached), Moment::now());
        let stays = |id: &str| detached.get(id).is_some_and(|until| *until > now);
        ids.filter(|id| !owned.contains_key(*id) && !stays(id)).map(str::to_owned).collect()
    }

    /// Whether this keeper has the claim, or had and detached it.
    pub(super) fn has(&self, id: &str) -> bool {
        self.strays(std::iter::once(id)).is_empty()
    }
}

/// A claim that this keeper has, for as long as this lives.
#[derive(Debug)]
pub(super) struct Owned {
    claims: Arc<OwnClaims>,
    id: String,
}

impl Owned {
    /// The claim stays in Redis for `span`, although no task has it any more.
    pub(super) fn detach(&self, span: Duration) {
        let now = Moment::now();
        let mut detached = lock(&self.claims.detached);
        if detached.len() == detached.capacity() {
            detached.retain(|_, until| *until > now);
        }
        detached.insert(self.id.clone(), now + span);
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Entry::Occupied(mut times) =
            lock(&self.claims.ids).entry(std::mem::take(&mut self.id))
        {
            *times.get_mut() -= 1;
            if *times.get() == 0 {
                times.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim that is taken for a stray is removed from Redis, so each way of having one counts.
    #[test]
    fn what_is_not_here_any_more_is_a_stray() {
        let claims = Arc::new(OwnClaims::default());
        let (one, two) = (claims.enter("1"), claims.enter("2"));
        assert_eq!(claims.strays(["1", "2", "3"].into_iter()), ["3"]);
        let again = one.clone();
        drop(one);
        assert!(claims.has("1"), "someone still has it");
        drop(again);
        assert!(!claims.has("1"));
        two.detach(Duration::from_secs(60));
        drop(two);
        assert!(claims.has("2"), "it is to stay");
        claims.enter("4").detach(Duration::ZERO);
        assert!(!claims.has("4"), "it has stayed for long enough");
    }

    /// A keeper that holds a claim may be handed the claim's own ticket.
    #[test]
    fn a_claim_that_was_entered_twice_is_here_until_both_have_left() {
        let claims = Arc::new(OwnClaims::default());
        let (granted, by_ticket) = (claims.enter("1"), claims.enter("1"));
        drop(by_ticket);
        assert!(claims.has("1"), "its holder still has it");
        drop(granted);
        assert!(!claims.has("1"));
    }
}
