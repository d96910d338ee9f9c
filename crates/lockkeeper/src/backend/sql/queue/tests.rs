//! Random claims of several keepers on one name, in a store that is two vectors.

use super::*;
use crate::backend::{Claim, Name, Owner, Primitive};
use crate::claim::ClaimIds;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The two tables, for one name.
#[derive(Debug, Default, Clone)]
struct Store {
    now: i64,
    version: i64,
    last: i64,
    waiting: i64,
    place: i16,
    alone: Option<Record>,
    claims: BTreeMap<(i16, i64), Record>,
    /// When the heartbeat of each keeper ends.
    alive: BTreeMap<String, i64>,
}

impl Store {
    /// As the statement reads it: who does not wait, and the first of those who do.
    fn read(&self, process: &str, id: &str) -> Queue {
        let alive =
            |record: &Record| self.alive.get(&record.process).is_some_and(|it| *it > self.now);
        let mut read: Vec<(Record, bool)> = Vec::new();
        match self.place {
            ALONE => read.extend(
                self.alone
                    .iter()
                    .map(|record| (Record { ticket: record.token, ..record.clone() }, true)),
            ),
            _ => {
                let (waiting, others): (Vec<&Record>, Vec<&Record>) =
                    self.claims.values().partition(|record| record.state == WAITING);
                let asked_for = waiting.iter().filter(|record| record.id == id);
                let first = waiting.iter().take(LOADED).chain(asked_for);
                let all = others.iter().chain(first);
                read.extend(all.map(|record| ((*record).clone(), alive(record))));
            }
        }
        let head = (self.now, self.version, self.last, self.waiting, self.place);
        Queue::read(process, head, read)
    }

    /// As the statement writes it.
    fn apply(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        self.version += 1;
        (self.place, self.last, self.waiting) = (change.place, change.last, change.waiting);
        self.alone = change.alone;
        for key in change.deletes {
            assert!(self.claims.remove(&key).is_some(), "{key:?} was not there");
        }
        for (was, record) in change.updates {
            assert!(self.claims.remove(&(was, record.ticket)).is_some(), "{record:?}");
            self.claims.insert((record.state, record.ticket), record);
        }
        for record in change.inserts {
            assert!(self.claims.insert((record.state, record.ticket), record).is_none());
        }
    }

    fn records(&self) -> Vec<Record> {
        match self.place {
            ALONE => self.alone.iter().cloned().collect(),
            _ => self.claims.values().cloned().collect(),
        }
    }

    /// What must be true between any two changes.
    fn check(&self) {
        let live = self.records().into_iter().filter(|it| it.holds() && it.expires > self.now);
        let mut held: Vec<(Mode, i64)> = Vec::new();
        for record in live {
            if !held.iter().any(|(_, token)| *token == record.token) {
                assert!(queue::fits(record.mode, held.iter().copied()), "{self:?}");
            }
            held.push((record.mode, record.token));
            assert!(record.token <= self.last && record.ticket <= self.last, "{self:?}");
        }
        if self.place != CROWD {
            assert!(self.claims.is_empty() && self.waiting == 0, "{self:?}");
        }
        assert_eq!(self.alone.is_some(), self.place == ALONE, "{self:?}");
        let waiting = self.claims.values().filter(|record| record.state == WAITING).count();
        assert_eq!(self.waiting, count(waiting), "{self:?}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Ask { keeper: usize, mode: Mode, owner: u8 },
    Release(prop::sample::Index),
    Confirm(prop::sample::Index),
    Renew(prop::sample::Index),
    Leave(prop::sample::Index),
    Break(prop::sample::Index),
    Beat(usize),
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        3 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        1 => (1..3_u32).prop_map(|of| Mode::Permit { of }),
    ];
    prop_oneof![
        6 => (0..3_usize, mode, 0..6_u8).prop_map(|(keeper, mode, owner)| Step::Ask { keeper, mode, owner }),
        4 => any::<prop::sample::Index>().prop_map(Step::Release),
        2 => any::<prop::sample::Index>().prop_map(Step::Confirm),
        2 => any::<prop::sample::Index>().prop_map(Step::Renew),
        2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => any::<prop::sample::Index>().prop_map(Step::Break),
        3 => (0..3_usize).prop_map(Step::Beat),
        2 => (1..3_000_000_i64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whatever happens: those that hold fit beside each other, tokens grow with every grant, and
    /// the two tables say the same of the name.
    #[test]
    fn holders_fit_and_tokens_grow(steps in prop::collection::vec(step(), 1..60)) {
        let ids = ClaimIds::new().unwrap();
        let mut store = Store { now: 1_000_000, ..Store::default() };
        let mut known: Vec<(String, usize)> = Vec::new();
        for step in steps {
            let pick = |index: prop::sample::Index| {
                (!known.is_empty()).then(|| known[index.index(known.len())].clone())
            };
            let before = store.last;
            match step {
                Step::Pass(micros) => store.now += micros,
                Step::Beat(keeper) => {
                    let until = store.now + micros(WAITER_LEASE);
                    store.alive.insert(format!("keeper{keeper}"), until);
                }
                Step::Ask { keeper, mode, owner } => {
                    let claim = Claim {
                        id: ids.next(),
                        name: Name::new("name").unwrap(),
                        mode,
                        primitive: Primitive::Lock,
                        owner: Owner::new(&format!("owner{owner}")).unwrap(),
                        ttl: Duration::from_secs(5),
                        identity: "".into(),
                        note: "".into(),
                        by_id: false,
                    };
                    let id = claim.id.to_string();
                    let mut queue = store.read(&format!("keeper{keeper}"), &id);
                    let held: Vec<i64> = queue.records.iter().map(|it| it.token).collect();
                    if let Asked::Granted(token) = queue.ask(&claim, true) {
                        let token = i64::try_from(token.get()).unwrap();
                        // A new one is above all that were; an owner that enters again has its own.
                        prop_assert!(token > before || held.contains(&token));
                    }
                    store.apply(queue.change(false));
                    known.push((id, keeper));
                }
                Step::Release(index) | Step::Confirm(index) | Step::Renew(index)
                | Step::Leave(index) | Step::Break(index) => {
                    let Some((id, keeper)) = pick(index) else { continue };
                    let mut queue = store.read(&format!("keeper{keeper}"), &id);
                    match step {
                        Step::Release(_) => _ = queue.release(&id, Duration::ZERO),
                        Step::Confirm(_) => _ = queue.confirm(&id),
                        Step::Renew(_) => _ = queue.renew(&id, Duration::from_secs(5)),
                        Step::Leave(_) => {
                            let left = queue.leave(&id);
                            let there = queue.records.iter().any(|record| record.id == id);
                            prop_assert_eq!(there, matches!(left, Left::Granted(_)));
                        }
                        _ => {
                            let token = queue.records.iter().find(|it| it.id == id);
                            let token = token.map(Record::fencing_token);
                            if let Some(token) = token {
                                queue.break_hold(token, "why");
                            }
                        }
                    }
                    store.apply(queue.change(false));
                }
            }
            prop_assert!(store.last >= before);
            store.check();
        }
    }
}
