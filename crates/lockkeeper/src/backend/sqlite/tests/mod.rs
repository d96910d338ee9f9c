//! The queue in the table, on a clock of the test's own.
//!
//! Every test calls requests directly, as processes of any name and at any time; there is no
//! driver, no thread and no sleep, so each test does the same at every run.

#[cfg(unix)]
mod crowd;
mod random;

use super::client::transaction::{Granted, Transaction};
use super::requests::{Asked, Left};
use super::{inspect, schema, time::StoreClock};
use crate::backend::{Claim, LossReason, Mode, Moment, Name, Owner, Standing};
use crate::claim::{ClaimIds, Primitive};
use rusqlite::Connection;
use std::cell::{Cell, RefCell};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);
const EXCLUSIVE: Mode = Mode::Exclusive;

/// A table, and any number of processes at it. They share a connection, which stands for the one
/// writer that SQLite lets in at a time.
struct Bench {
    connection: Connection,
    /// The file's time in milliseconds; moves only with [`Bench::pass`].
    now: Cell<i64>,
    /// The wall clock in microseconds, for tokens; tests set it back.
    wall: Cell<i64>,
    ids: ClaimIds,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let connection = schema::open(&path, &StoreClock::of_this_machine()).unwrap();
        let (now, wall) = (Cell::new(1_000_000), Cell::new(1_700_000_000_000));
        Self { connection, now, wall, ids: ClaimIds::new().unwrap(), _folder: folder }
    }

    /// A claim of a new owner: no two claims of a test enter again by accident.
    fn claim(&self, name: &str, mode: Mode) -> Claim {
        let id = self.ids.next();
        Claim {
            id,
            name: Name::new(name).unwrap(),
            mode,
            primitive: Primitive::Lock,
            owner: Owner::from_id(id.to_string()),
            ttl: TTL,
            identity: "someone".into(),
            note: "".into(),
            by_id: false,
        }
    }

    /// Does `work` as `process`; what it gave, and which waiters of that process were granted.
    fn as_process<T>(
        &self,
        process: &str,
        work: impl FnOnce(&Transaction<'_>) -> T,
    ) -> (T, Vec<Granted>) {
        let (output, granted) = self.in_transaction(process, work);
        (output, granted.into_iter().map(|(_, granted)| granted).collect())
    }

    /// The same with the names of what was granted. Each statement commits by itself here: nothing
    /// else uses the file, so that makes no difference.
    fn in_transaction<T>(
        &self,
        process: &str,
        work: impl FnOnce(&Transaction<'_>) -> T,
    ) -> (T, Vec<(String, Granted)>) {
        let (now, wall) = (self.now.get(), self.wall.get());
        let (connection, sent) = (&self.connection, Moment::now());
        let (granted, concerned) = (RefCell::default(), RefCell::default());
        let tx = Transaction { connection, process, now, wall, sent, granted, concerned };
        let output = work(&tx);
        let granted = tx.granted.into_inner();
        (output, granted)
    }

    /// Asks, and queues if the name is busy.
    fn ask(&self, process: &str, claim: &Claim) -> Asked {
        self.as_process(process, |tx| tx.ask(claim, true).unwrap()).0
    }

    /// Takes a name that must be free.
    fn take(&self, process: &str, name: &str) -> (Claim, Granted) {
        let claim = self.claim(name, EXCLUSIVE);
        match self.ask(process, &claim) {
            Asked::Granted(granted) => (claim, granted),
            other => panic!("{other:?}"),
        }
    }

    /// Queues at a name that must be busy.
    fn queue(&self, process: &str, name: &str, mode: Mode) -> Claim {
        let claim = self.claim(name, mode);
        assert!(matches!(self.ask(process, &claim), Asked::Queued { .. }));
        claim
    }

    /// Releases at once; the waiters of the same process that were granted thereby.
    fn release(&self, process: &str, claim: &Claim, granted: &Granted) -> Vec<Granted> {
        let name = claim.name.as_str();
        self.as_process(process, |tx| {
            tx.release(name, Some(granted.ticket), &granted.id, Duration::ZERO).unwrap();
        })
        .1
    }

    fn pass(&self, span: Duration) {
        self.now.set(self.now.get() + i64::try_from(span.as_millis()).unwrap());
    }

    /// All rows of the table, of any state: what a test left behind.
    fn rows(&self) -> i64 {
        self.connection.query_row("SELECT count(*) FROM claim", [], |row| row.get(0)).unwrap()
    }
}

/// With its id alone a claim can be kept and given back from any process, but not once it was given
/// back to stay for a while. Fails if renewal or release forgets the condition on `process`, or
/// finds a row by its id under another name.
#[test]
fn a_ticket_keeps_a_claim_until_it_is_given_back() {
    let bench = Bench::new();
    let (_, granted) = bench.take("p", "n");
    let renew = || bench.as_process("q", |tx| tx.renew("n", None, &granted.id, TTL).unwrap()).0;
    let release =
        |stay| bench.as_process("q", |tx| tx.release("n", None, &granted.id, stay).unwrap()).0;
    assert_eq!(renew(), Standing::Held);
    assert_eq!(release(TTL / 2), None);
    assert_eq!(renew(), Standing::Lost(LossReason::Gone), "it stays, and is nobody's");
    assert_eq!(release(TTL), Some(LossReason::Gone), "nor can it be made to stay for longer");
    assert_eq!(release(Duration::ZERO), Some(LossReason::Gone), "nor be taken away early");
    let next = bench.claim("n", EXCLUSIVE);
    let asked = bench.as_process("q", |tx| tx.ask(&next, false).unwrap()).0;
    assert!(matches!(asked, Asked::Busy), "it stays all the same: {asked:?}");
    let (_, other) = bench.take("p", "m");
    let of_another_name =
        bench.as_process("q", |tx| tx.renew("n", None, &other.id, TTL).unwrap()).0;
    assert_eq!(of_another_name, Standing::Lost(LossReason::Gone));
}

/// One release grants to exactly one writer, in the same transaction. Fails if more than one is
/// granted, if the order is not that of asking, or if rows stay behind when all have left.
#[test]
fn release_hands_over_to_the_next_of_this_process_at_once() {
    let bench = Bench::new();
    let (first, granted) = bench.take("p", "n");
    let (second, third) = (bench.queue("p", "n", EXCLUSIVE), bench.queue("p", "n", EXCLUSIVE));
    let woken = bench.release("p", &first, &granted);
    assert_eq!(woken.len(), 1, "one is woken, not all");
    assert_eq!(woken[0].id, second.id.to_string());
    assert!(woken[0].token > granted.token);
    let woken = bench.release("p", &second, &woken[0]);
    assert_eq!(woken[0].id, third.id.to_string());
    assert!(bench.release("p", &third, &woken[0]).is_empty());
    assert_eq!(bench.rows(), 1, "only the free row that remembers the token");
}

/// A hand-over to another process tells nobody here, shows up as a notice there, and lasts for the
/// whole ttl once confirmed. Fails if the row keeps its short lease after the confirmation: ten
/// seconds later the waiter behind it would be let in as well.
#[test]
fn another_process_must_confirm_what_it_was_handed() {
    let bench = Bench::new();
    let (first, granted) = bench.take("p", "n");
    let second = bench.queue("q", "n", EXCLUSIVE);
    bench.queue("p", "n", EXCLUSIVE);
    assert!(bench.release("p", &first, &granted).is_empty(), "not ours to wake");
    assert!(Transaction::has_notices(&bench.connection, "q").unwrap());
    assert!(!Transaction::has_notices(&bench.connection, "p").unwrap());
    let ((), confirmed) = bench.as_process("q", |tx| tx.confirm().unwrap());
    assert_eq!(confirmed[0].id, second.id.to_string());
    bench.pass(Duration::from_secs(10));
    let (_, woken) = bench.as_process("p", |tx| tx.advance("n").unwrap());
    assert!(woken.is_empty(), "confirmed, so it holds for its whole ttl");
}

/// Two waiters of a dead process delay the next by two seconds together. Fails if a hand-over
/// starts a new lease, since then each of them would cost two seconds; or if a late confirmation is
/// accepted.
#[test]
fn a_dead_process_costs_two_seconds_however_many_of_it_wait() {
    let bench = Bench::new();
    let (first, granted) = bench.take("p", "n");
    bench.queue("dead", "n", EXCLUSIVE);
    bench.queue("dead", "n", EXCLUSIVE);
    let third = bench.queue("p", "n", EXCLUSIVE);
    bench.pass(Duration::from_millis(1000));
    bench.as_process("p", |tx| tx.beat().unwrap());
    bench.release("p", &first, &granted);
    bench.pass(Duration::from_millis(999));
    bench.as_process("p", |tx| tx.beat().unwrap());
    let (_, woken) = bench.as_process("p", |tx| tx.advance("n").unwrap());
    assert!(woken.is_empty());
    bench.pass(Duration::from_millis(2));
    let (_, woken) = bench.as_process("p", |tx| tx.advance("n").unwrap());
    assert_eq!(woken[0].id, third.id.to_string());
    let ((), late) = bench.as_process("dead", |tx| tx.confirm().unwrap());
    assert!(late.is_empty(), "too late to confirm");
}

/// A waiter without heartbeats loses its place, one with heartbeats keeps it for longer than a
/// lease. Also proves that a heartbeat returns the rows of its own process only.
#[test]
fn waiters_that_show_no_life_are_dropped_and_those_that_do_are_not() {
    let bench = Bench::new();
    let (first, granted) = bench.take("p", "n");
    bench.queue("dead", "n", EXCLUSIVE);
    let alive = bench.queue("p", "n", EXCLUSIVE);
    for _ in 0..4 {
        bench.pass(Duration::from_secs(1));
        let (ids, _) = bench.as_process("p", |tx| tx.beat().unwrap());
        let ids: Vec<_> = ids.into_iter().map(|queued| (queued.id, queued.name)).collect();
        assert_eq!(ids, [(alive.id.to_string(), "n".to_owned())]);
    }
    let woken = bench.release("p", &first, &granted);
    assert_eq!(woken[0].id, alive.id.to_string());
}

/// An expired claim is lost even if its row is untouched. Fails if renewal checks the id only.
#[test]
fn a_late_renewal_does_not_revive() {
    let bench = Bench::new();
    let (_, granted) = bench.take("p", "n");
    let renew = || {
        bench.as_process("p", |tx| tx.renew("n", Some(granted.ticket), &granted.id, TTL).unwrap()).0
    };
    bench.pass(TTL - Duration::from_millis(1));
    assert_eq!(renew(), Standing::Held);
    bench.pass(TTL);
    assert_eq!(renew(), Standing::Lost(LossReason::Gone), "expired, though nobody else came");
}

/// A holder that comes back after its claim expired can do nothing to its successor, however often
/// it tries. Fails if a release is not checked against the id.
#[test]
fn release_leaves_the_next_holder_alone() {
    let bench = Bench::new();
    let (stale, granted) = bench.take("p", "n");
    bench.pass(TTL);
    let (_, next) = bench.take("q", "n");
    assert!(next.token > granted.token);
    assert!(bench.release("p", &stale, &granted).is_empty());
    assert!(bench.release("p", &stale, &granted).is_empty(), "twice is harmless");
    let standing =
        bench.as_process("q", |tx| tx.renew("n", Some(next.ticket), &next.id, TTL).unwrap()).0;
    assert_eq!(standing, Standing::Held);
}

/// Readers at the head are granted together; a reader behind a waiting writer is not, or writers
/// would wait for ever.
#[test]
fn readers_go_in_together_and_wait_behind_a_writer() {
    let bench = Bench::new();
    let (writer, granted) = bench.take("p", "n");
    let readers = [bench.queue("p", "n", Mode::Shared), bench.queue("p", "n", Mode::Shared)];
    bench.queue("p", "n", EXCLUSIVE);
    let late = bench.queue("p", "n", Mode::Shared);
    let woken = bench.release("p", &writer, &granted);
    let ids: Vec<_> = woken.iter().map(|granted| granted.id.clone()).collect();
    assert_eq!(ids, readers.map(|reader| reader.id.to_string()));
    assert!(!ids.contains(&late.id.to_string()));
}

/// The largest ticket survives its row. The second reader has it and leaves first, and the clock is
/// set back, so only the column `high` can tell the third reader to go above it.
#[test]
fn tokens_grow_though_a_later_reader_leaves_first_and_the_clock_goes_back() {
    let bench = Bench::new();
    let mut last = 0;
    let mut grows = |granted: &Granted| {
        assert!(granted.token.get() > last, "{} after {last}", granted.token);
        last = granted.token.get();
    };
    let reader = || {
        let claim = bench.claim("n", Mode::Shared);
        match bench.ask("p", &claim) {
            Asked::Granted(granted) => (claim, granted),
            other => panic!("{other:?}"),
        }
    };
    let (first, first_turn) = reader();
    let (second, second_turn) = reader();
    grows(&first_turn);
    grows(&second_turn);
    bench.release("p", &second, &second_turn);
    bench.wall.set(5);
    let (third, third_turn) = reader();
    grows(&third_turn);
    bench.release("p", &first, &first_turn);
    bench.release("p", &third, &third_turn);
    let (_, granted) = bench.take("p", "n");
    grows(&granted);
}

/// A writer that gives up lets the reader behind it in beside the one that holds; and a waiter that
/// leaves after it was granted is told so, or the lock would be held by nobody until its ttl.
#[test]
fn leaving_lets_those_behind_in_and_keeps_what_was_granted_meanwhile() {
    let bench = Bench::new();
    let claim = bench.claim("n", Mode::Shared);
    let Asked::Granted(granted) = bench.ask("p", &claim) else { panic!() };
    let writer = bench.queue("p", "n", EXCLUSIVE);
    let reader = bench.queue("p", "n", Mode::Shared);
    let id = writer.id.to_string();
    let (left, woken) = bench.as_process("p", |tx| tx.leave("n", &id).unwrap());
    assert!(matches!(left, Left::From(1)), "{left:?}");
    assert_eq!(woken[0].id, reader.id.to_string());
    let (left, _) = bench.as_process("p", |tx| tx.leave("n", &reader.id.to_string()).unwrap());
    assert!(matches!(left, Left::Granted(_)), "{left:?}");
    bench.release("p", &claim, &granted);
}

/// A break needs the right token, lets the next in at once, and is reported with its reason to
/// every request of the old holder until the row is removed.
#[test]
fn a_broken_claim_tells_its_holder_and_lets_the_next_in() {
    let bench = Bench::new();
    let (_, granted) = bench.take("p", "n");
    let next = bench.queue("q", "n", EXCLUSIVE);
    let token = i64::try_from(granted.token.get()).unwrap();
    let (broken, woken) = bench.as_process("q", |tx| {
        assert!(!tx.break_hold("n", token + 1, "wrong token").unwrap());
        tx.break_hold("n", token, "stuck").unwrap()
    });
    assert!(broken);
    assert_eq!(woken[0].id, next.id.to_string());
    let told = bench
        .as_process("p", |tx| tx.renew("n", Some(granted.ticket), &granted.id, TTL).unwrap())
        .0;
    assert_eq!(told, Standing::Lost(LossReason::Broken { reason: "stuck".into() }));
    let (notices, _) = bench.as_process("p", |tx| tx.broken().unwrap());
    let at_release = |id: &str| {
        bench
            .as_process("p", |tx| {
                tx.release("n", Some(granted.ticket), id, Duration::ZERO).unwrap()
            })
            .0
    };
    let stuck = LossReason::Broken { reason: "stuck".into() };
    assert_eq!(at_release(&granted.id), Some(stuck), "who gives it back is told as well");
    assert_eq!(at_release(&granted.id), Some(LossReason::Gone));
    assert_eq!(notices, [("n".to_owned(), granted.id, "stuck".to_owned())]);
}

/// Free rows go after a minute, in several transactions; what is held stays, and what has just
/// expired becomes a free row. Fails if a token is forgotten with its row: the clock is set back,
/// so only `meta` can tell the next claim to go above it.
#[test]
fn the_cleaner_takes_old_free_rows_and_no_token_is_forgotten() {
    let bench = Bench::new();
    let mut last = 0;
    for number in 0..1200 {
        let (claim, granted) = bench.take("p", &format!("n/{number:04}"));
        bench.release("p", &claim, &granted);
        last = last.max(granted.token.get());
    }
    let (held, _) = bench.take("p", "n/held");
    bench.take("p", "n/expired");
    bench.pass(Duration::from_secs(61));
    bench.as_process("p", |tx| {
        let renewed = "UPDATE claim SET expires = ?1 WHERE id = ?2";
        tx.connection.execute(renewed, (tx.now + 9000, held.id.to_string())).unwrap();
    });
    assert_eq!(bench.rows(), 1202);
    while bench.as_process("p", |tx| super::cleanup::clean_some(tx).unwrap()).0 {}
    assert_eq!(bench.rows(), 2, "what is held, and what expired just now");
    bench.wall.set(5);
    let (_, granted) = bench.take("p", "n/0007");
    assert!(granted.token.get() > last, "{} after {last}", granted.token);
}

/// Holders and waiters are told apart and in order, and a prefix selects names. Fails if `list`
/// runs on beyond the prefix.
#[test]
fn the_view_shows_holders_and_waiters_in_order() {
    let bench = Bench::new();
    bench.take("p", "a/1");
    bench.queue("p", "a/1", EXCLUSIVE);
    bench.queue("p", "a/1", Mode::Permit { of: 3 });
    bench.take("p", "b");
    let (views, _) = bench.as_process("p", |tx| inspect::list(tx, "a/").unwrap());
    assert_eq!(views.len(), 1);
    assert_eq!((views[0].holders.len(), views[0].waiters.len()), (1, 2));
    assert_eq!(views[0].waiters[1].mode, Mode::Permit { of: 3 });
    assert_eq!(bench.as_process("p", |tx| inspect::list(tx, "").unwrap()).0.len(), 2);
    assert!(bench.as_process("p", |tx| inspect::list(tx, "c").unwrap()).0.is_empty());
}

/// Every query that runs while others wait must use the index, or waiting costs more the more names
/// there are. Fails if the index no longer covers such a query. The queries here are copies: a
/// change to one in `requests` has to be repeated here.
#[test]
fn what_the_clerk_asks_uses_the_index() {
    let bench = Bench::new();
    for sql in [
        "SELECT 1 FROM claim WHERE process = 'p' AND state > 1 AND state IN (3, 4)",
        "UPDATE claim SET expires = 1 WHERE process = 'p' AND state > 1 AND state = 2",
    ] {
        let plan: String = bench
            .connection
            .query_row(&format!("EXPLAIN QUERY PLAN {sql}"), [], |row| row.get(3))
            .unwrap();
        assert!(plan.contains("claim_to_look_after"), "{plan}");
    }
}
