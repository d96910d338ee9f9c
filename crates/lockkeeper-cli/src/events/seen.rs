//! What is different from the look before.

use super::look::Look;
use lockkeeper::backend::{HolderView, LockView, WaiterView};
use lockkeeper::{FencingToken, Mode, Owner};
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

/// Something that happened between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// When it was seen, which is up to an interval after it happened.
    pub(crate) at: SystemTime,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) identity: String,
    pub(crate) note: String,
    pub(crate) mode: Mode,
    pub(crate) token: Option<FencingToken>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Queued,
    /// After waiting this long, as far as was seen.
    Granted(Duration),
    /// After holding it this long.
    Released(Duration),
    Expired(Duration),
    /// After waiting this long.
    Left(Duration),
}

/// The look before.
#[derive(Debug)]
pub(crate) struct Seen(Look);

impl Seen {
    pub(crate) fn new(first: Look) -> Self {
        Self(first)
    }

    /// What happened since, by name; who went before who came.
    pub(crate) fn compare(&mut self, now: Look) -> Vec<Event> {
        let before = std::mem::replace(&mut self.0, now);
        let now = &self.0;
        let since = now.moment.saturating_duration_since(before.moment);
        let mut names: Vec<_> = before.locks.keys().chain(now.locks.keys()).collect();
        names.sort();
        names.dedup();
        let mut events = Vec::new();
        for name in names {
            let change = Change {
                at: now.at,
                since,
                name,
                before: before.locks.get(name),
                now: now.locks.get(name),
                // Of a list that was cut, what is missing may be behind the cut.
                trusts_absence: !now.is_cut || now.locks.contains_key(name),
                trusts_presence: !before.is_cut || before.locks.contains_key(name),
            };
            change.tell(&mut events);
        }
        events
    }
}

/// One name, in both looks.
struct Change<'a> {
    at: SystemTime,
    since: Duration,
    name: &'a str,
    before: Option<&'a LockView>,
    now: Option<&'a LockView>,
    trusts_absence: bool,
    trusts_presence: bool,
}

impl Change<'_> {
    fn tell(&self, events: &mut Vec<Event>) {
        let (held_before, held_now) = (holders(self.before), holders(self.now));
        let (waited_before, waits_now) = (waiters(self.before), waiters(self.now));
        if self.trusts_absence {
            let now: HashSet<_> = held_now.iter().map(grant_of).collect();
            let gone = held_before.iter().filter(|it| !now.contains(&grant_of(it)));
            events.extend(gone.map(|holder| self.ended(holder)));
            let now: HashSet<_> = held_now.iter().map(|it| it.owner.id()).collect();
            let waits: HashSet<_> = waits_now.iter().map(|it| it.owner.id()).collect();
            let left = waited_before
                .iter()
                .filter(|it| !now.contains(it.owner.id()) && !waits.contains(it.owner.id()));
            let left = left.map(|it| self.of_waiter(it, Kind::Left(it.waiting_for + self.since)));
            events.extend(left);
        }
        if self.trusts_presence {
            let before: HashSet<_> = held_before.iter().map(grant_of).collect();
            let new = held_now.iter().filter(|it| !before.contains(&grant_of(it)));
            events.extend(new.map(|holder| self.granted(holder, waited_before)));
            let before: HashSet<_> = waited_before.iter().map(|it| it.owner.id()).collect();
            let new = waits_now.iter().filter(|it| !before.contains(it.owner.id()));
            events.extend(new.map(|waiter| self.of_waiter(waiter, Kind::Queued)));
        }
    }

    fn ended(&self, holder: &HolderView) -> Event {
        let held = holder.held_for + self.since;
        let kind = match holder.expires_in <= self.since {
            true => Kind::Expired(held),
            false => Kind::Released(held),
        };
        self.of_holder(holder, kind)
    }

    fn granted(&self, holder: &HolderView, waited: &[WaiterView]) -> Event {
        let waiter = waited.iter().find(|waiter| waiter.owner == holder.owner);
        // It waited until its grant, which was `held_for` ago.
        let waited = waiter.map_or(Duration::ZERO, |waiter| {
            (waiter.waiting_for + self.since).saturating_sub(holder.held_for)
        });
        self.of_holder(holder, Kind::Granted(waited))
    }

    fn of_holder(&self, holder: &HolderView, kind: Kind) -> Event {
        Event {
            at: self.at,
            kind,
            name: self.name.to_owned(),
            owner: holder.owner.clone(),
            identity: holder.identity.clone(),
            note: holder.note.clone(),
            mode: holder.mode,
            token: holder.token,
        }
    }

    fn of_waiter(&self, waiter: &WaiterView, kind: Kind) -> Event {
        Event {
            at: self.at,
            kind,
            name: self.name.to_owned(),
            owner: waiter.owner.clone(),
            identity: waiter.identity.clone(),
            note: waiter.note.clone(),
            mode: waiter.mode,
            token: None,
        }
    }
}

fn holders(view: Option<&LockView>) -> &[HolderView] {
    view.map_or(&[], |view| &view.holders)
}

fn waiters(view: Option<&LockView>) -> &[WaiterView] {
    view.map_or(&[], |view| &view.waiters)
}

/// What makes two views show the same grant.
fn grant_of(holder: &HolderView) -> (&str, Option<FencingToken>) {
    (holder.owner.id(), holder.token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::Name;
    use std::collections::BTreeMap;
    use tokio::time::Instant;

    fn owner(id: &str) -> Owner {
        Owner::new(id).unwrap()
    }

    /// A lock whose holders are `(id, token, seconds until it expires)`.
    fn lock(holders: &[(&str, u64, u64)], waiters: &[&str]) -> LockView {
        let mut view = LockView::new(Name::new("x").unwrap());
        for (id, token, seconds) in holders {
            let mut holder = HolderView::new(owner(id), Mode::Exclusive);
            holder.token = FencingToken::new(*token);
            holder.expires_in = Duration::from_secs(*seconds);
            view.holders.push(holder);
        }
        for id in waiters {
            let mut waiter = WaiterView::new(owner(id), Mode::Exclusive);
            waiter.waiting_for = Duration::from_secs(5);
            view.waiters.push(waiter);
        }
        view
    }

    fn look(begun: Instant, second: u64, lock: Option<LockView>) -> Look {
        let locks: BTreeMap<_, _> = lock.into_iter().map(|it| ("x".to_owned(), it)).collect();
        let moment = begun + Duration::from_secs(second);
        Look { at: SystemTime::now(), moment, locks, is_cut: false }
    }

    fn kinds(events: &[Event]) -> Vec<(Kind, &str)> {
        events.iter().map(|event| (event.kind, event.owner.id())).collect()
    }

    #[test]
    fn a_hand_over_is_a_release_and_a_grant() {
        let begun = Instant::now();
        let mut seen = Seen::new(look(begun, 0, None));
        let events = seen.compare(look(begun, 1, Some(lock(&[("a", 1, 30)], &["b"]))));
        let (granted, queued) = ((Kind::Granted(Duration::ZERO), "a"), (Kind::Queued, "b"));
        assert_eq!(kinds(&events), [granted, queued]);
        assert_eq!(events[0].token, FencingToken::new(1));
        assert!(seen.compare(look(begun, 2, Some(lock(&[("a", 1, 29)], &["b"])))).is_empty());
        let events = seen.compare(look(begun, 3, Some(lock(&[("b", 2, 30)], &[]))));
        let second = Duration::from_secs(1);
        let expected = [(Kind::Released(second), "a"), (Kind::Granted(second * 6), "b")];
        assert_eq!(kinds(&events), expected);
        assert_eq!(kinds(&seen.compare(look(begun, 4, None))), [(Kind::Released(second), "b")]);
    }

    #[test]
    fn one_that_was_not_renewed_expired_and_one_that_gave_up_left() {
        let begun = Instant::now();
        let mut seen = Seen::new(look(begun, 0, Some(lock(&[("a", 1, 1)], &["b"]))));
        let events = seen.compare(look(begun, 2, None));
        let (two, seven) = (Duration::from_secs(2), Duration::from_secs(7));
        assert_eq!(kinds(&events), [(Kind::Expired(two), "a"), (Kind::Left(seven), "b")]);
    }

    #[test]
    fn the_same_owner_with_another_token_was_granted_anew() {
        let begun = Instant::now();
        let mut seen = Seen::new(look(begun, 0, Some(lock(&[("a", 1, 30)], &[]))));
        let events = seen.compare(look(begun, 1, Some(lock(&[("a", 2, 30)], &[]))));
        assert_eq!(events.len(), 2, "{events:?}");
    }

    #[test]
    fn behind_a_cut_nothing_is_made_up() {
        let begun = Instant::now();
        let mut seen = Seen::new(look(begun, 0, Some(lock(&[("a", 1, 30)], &["b"]))));
        let cut = Look { is_cut: true, ..look(begun, 1, None) };
        assert!(seen.compare(cut).is_empty());
        assert!(seen.compare(look(begun, 2, Some(lock(&[("a", 1, 30)], &["b"])))).is_empty());
    }
}
