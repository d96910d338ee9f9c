//! Several clients at one file, each standing for a process, with real drivers, sockets and time:
//! which of them is woken, by what, and what waiters and holders are told when the file goes away.
//!
//! Limits on time are there against hanging only, and long.

use super::super::{Sqlite, SqliteOptions};
use crate::backend::{
    Alarm, Backend, Background, Claim, Grant, Lease, LossReason, Mode, Moment, Name, Owner,
    Patience, Release, Signal, Standing, Ticket,
};
use crate::claim::{ClaimIds, Primitive};
use crate::error::{ErrorKind, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;

/// So long that nothing expires by itself while a test runs.
const TTL: Duration = Duration::from_secs(600);

/// A folder with a lock file, and claims on one name in it.
struct Place {
    folder: tempfile::TempDir,
    file: PathBuf,
    ids: ClaimIds,
}

impl Place {
    fn new() -> Self {
        Self::at("locks.db")
    }

    /// With the file at this path below the folder; what is above it is made.
    fn at(file: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        Self { folder, file, ids: ClaimIds::new().unwrap() }
    }

    /// A client with a name and a driver of its own: to the file it is another process.
    fn process(&self) -> Arc<Sqlite> {
        Arc::new(Sqlite::open(SqliteOptions::new(&self.file), &Background::new()).unwrap())
    }

    /// A claim of a new owner, on the one name that all tests here use.
    fn claim(&self) -> Claim {
        let id = self.ids.next();
        Claim {
            id,
            name: Name::new("n").unwrap(),
            mode: Mode::Exclusive,
            primitive: Primitive::Lock,
            owner: Owner::from_id(id.to_string()),
            ttl: TTL,
            identity: "someone".into(),
            note: "".into(),
            by_id: false,
        }
    }

    /// Takes the name, which must be free.
    async fn take(&self, process: &Sqlite) -> Grant {
        process.acquire(&self.claim(), &Patience::none()).await.unwrap().expect("it is free")
    }

    /// Begins to wait, and returns once the row is in the file and the driver sleeps at its socket:
    /// from there on only a message or a heartbeat can wake it.
    async fn queue(&self, process: &Arc<Sqlite>) -> JoinHandle<Result<Option<Grant>>> {
        let (claim, process) = (self.claim(), process.clone());
        let id = claim.id.to_string();
        let client = process.client();
        let waiting =
            tokio::spawn(async move { process.acquire(&claim, &Patience::endless()).await });
        until(|| client.waiters.waiting().iter().any(|(queued, _)| *queued == id)).await;
        // Until the driver has dealt with it and sleeps.
        until(|| client.wakeup.is_at_socket()).await;
        waiting
    }

    fn wake_folder(&self) -> PathBuf {
        let mut folder = self.file.clone().into_os_string();
        folder.push("-wake");
        folder.into()
    }

    /// How many processes can be woken at the moment.
    fn sockets(&self) -> usize {
        fs::read_dir(self.wake_folder()).map_or(0, Iterator::count)
    }
}

/// Waits for as long as it takes: a test that fails here hangs, and says so by that.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The lease that a waiter was granted; fails if its wait ended in any other way.
async fn granted(waiting: JoinHandle<Result<Option<Grant>>>) -> Box<dyn Lease> {
    waiting.await.unwrap().unwrap().expect("granted").lease
}

/// With eight processes in the queue a release sends one message. Fails if it wakes all of them,
/// which would cost more the more processes wait.
#[tokio::test]
async fn a_hand_over_wakes_the_one_that_is_next_and_nobody_else() {
    let place = Place::new();
    let holder = place.process();
    let mut held = place.take(&holder).await;
    let processes: Vec<_> = (0..8).map(|_| place.process()).collect();
    let mut waiting = Vec::new();
    for process in &processes {
        waiting.push(place.queue(process).await);
    }
    let woken = || -> Vec<u64> {
        processes
            .iter()
            .map(|process| process.client().wakeup.messages.load(Ordering::SeqCst))
            .collect()
    };
    let before = woken();
    held.lease.release(&Release::now()).await.unwrap();
    let _next = granted(waiting.remove(0)).await;
    let after = woken();
    assert_eq!(after[0], before[0] + 1, "the next is woken once");
    assert_eq!(after[1..], before[1..], "and nobody else");
    waiting.into_iter().for_each(|waiting| waiting.abort());
}

/// Without the wake-up, each hand-over would take a heartbeat to be found, and there would be about
/// as many heartbeats as hand-overs. The second half counts how often drivers look while nothing
/// happens: a driver that polls would look hundreds of times during four heartbeats.
#[tokio::test]
async fn hand_overs_do_not_wait_for_a_heartbeat_and_waiting_is_no_poll() {
    const TURNS: usize = 60;
    let place = Place::new();
    let processes = [place.process(), place.process()];
    let passes = || -> u64 {
        processes.iter().map(|process| process.client().passes.load(Ordering::SeqCst)).sum()
    };
    let beats = || -> u64 {
        processes.iter().map(|process| process.client().beats.load(Ordering::SeqCst)).sum()
    };
    let mut held = place.take(&processes[0]).await.lease;
    let (mut in_turns, before) = (0, beats());
    for turn in 0..TURNS {
        let waiting = place.queue(&processes[(turn + 1) % 2]).await;
        held.release(&Release::now()).await.unwrap();
        held = granted(waiting).await;
        in_turns = beats() - before;
    }
    assert!(in_turns < TURNS as u64 / 2, "{in_turns} heartbeats for {TURNS} hand-overs");
    let waiting = place.queue(&processes[1]).await;
    let (quiet, beaten) = (passes(), beats());
    until(|| beats() >= beaten + 4).await;
    let looks = passes() - quiet;
    assert!(looks < 40, "the drivers looked {looks} times during 4 heartbeats");
    waiting.abort();
}

/// A file that is deleted, replaced, or gone with its folder ends every wait with an error that
/// says what to do, and that the engine does not retry. Fails at its time limit if a driver goes on
/// with its open file, which to SQLite is as good as before.
#[tokio::test]
async fn everyone_who_waits_learns_that_the_file_is_gone() {
    type Fault = fn(&Place);
    let deleted: Fault = |place| fs::remove_file(&place.file).unwrap();
    let replaced: Fault = |place| {
        let other = place.folder.path().join("other");
        fs::write(&other, "").unwrap();
        fs::rename(other, &place.file).unwrap();
    };
    let folder_gone: Fault = |place| {
        let folder = place.file.parent().unwrap();
        fs::rename(folder, folder.with_extension("away")).unwrap();
    };
    for fault in [deleted, replaced, folder_gone] {
        let place = Place::at("sub/locks.db");
        let processes: Vec<_> = (0..3).map(|_| place.process()).collect();
        let _held = place.take(&processes[0]).await;
        let mut waiting = Vec::new();
        for process in processes.iter().chain(&processes) {
            waiting.push(place.queue(process).await);
        }
        fault(&place);
        for waiting in waiting {
            let told = tokio::time::timeout(Duration::from_secs(30), waiting).await;
            let error = told.expect("told at all").unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("deleted or replaced"), "{error}");
            assert!(error.to_string().contains("start anew"), "{error}");
            assert!(!error.is_retryable(), "no outage that passes");
        }
    }
}

/// A process that is stopped in the middle of a transaction keeps the rows of all processes from
/// being renewed. Fails at its time limit if a driver retries for ever while the places in the
/// queue are lost.
#[tokio::test]
async fn those_who_wait_learn_that_their_place_is_lost() {
    let place = Place::new();
    let process = place.process();
    let _held = place.take(&process).await;
    let waiting = place.queue(&process).await;
    let stuck = rusqlite::Connection::open(&place.file).unwrap();
    stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    let error = told.expect("told at all").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("another process has kept"), "{error}");
}

/// Only a file in which nobody commits for five seconds is called kept. Fails if tries in vain
/// alone are counted: on a busy machine a process may lose every race for longer than that.
#[tokio::test]
async fn a_file_in_demand_is_not_called_kept() {
    let place = Place::new();
    let process = place.process();
    // The driver has cleaned, and asks nothing more of the file.
    until(|| process.client().wakeup.fast_asleep.load(Ordering::SeqCst)).await;
    let other = rusqlite::Connection::open(&place.file).unwrap();
    let after = |seconds| Moment::now() + Duration::from_secs(seconds);
    assert!(process.client().still_busy(after(0)).is_some());
    other.execute_batch("UPDATE meta SET value = value + 1 WHERE key = 'swept'").unwrap();
    assert!(process.client().still_busy(after(6)).is_some(), "somebody got in: it is not kept");
    assert!(process.client().still_busy(after(10)).is_some(), "not for long enough since");
    assert!(process.client().still_busy(after(12)).is_none(), "nobody got in for five seconds");
}

/// The folder has the mode of its parent and the socket the file's rights to write, so that users
/// that share the file can wake each other and nobody else can. A process that never waited makes
/// no socket, and the last one to go leaves no folder.
#[tokio::test]
async fn sockets_are_open_to_whom_the_file_is_and_gone_with_their_processes() {
    let place = Place::new();
    let holder = place.process();
    fs::set_permissions(&place.file, fs::Permissions::from_mode(0o660)).unwrap();
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o2770)).unwrap();
    let held = place.take(&holder).await;
    assert_eq!(place.sockets(), 0, "who never waited has none");
    let process = place.process();
    let waiting = place.queue(&process).await;
    assert_eq!(mode_of(&place.wake_folder()), 0o2770);
    let socket = place.wake_folder().join(&process.client().process);
    assert_eq!(mode_of(&socket), 0o620);
    drop(held);
    waiting.abort();
    let _ = waiting.await;
    let client = Arc::downgrade(&process.client());
    drop(process);
    until(|| client.strong_count() == 0).await;
    until(|| !place.wake_folder().exists()).await;
}

/// A socket without a reader is removed by the cleaning and by the first process that tries to wake
/// it; sockets in use stay. Fails also if a name from the file can lead out of the folder, or if a
/// waiter whose socket was removed is never granted.
#[tokio::test]
async fn what_killed_processes_leave_is_removed_and_what_others_use_is_not() {
    let place = Place::new();
    let holder = place.process();
    let mut held = place.take(&holder).await;
    let process = place.process();
    let waiting = place.queue(&process).await;
    let stale = place.wake_folder().join("0123-dead");
    drop(UnixDatagram::bind(&stale).unwrap());
    holder.client().sockets.remove_stale();
    assert!(!stale.exists());
    assert_eq!(place.sockets(), 1);
    // A process that tries to wake it finds out as well.
    drop(UnixDatagram::bind(&stale).unwrap());
    holder.client().sockets.wake("0123-dead");
    assert!(!stale.exists());
    // A path in the place of a process name must not lead out of the folder.
    let outside = UnixDatagram::bind(place.folder.path().join("outside")).unwrap();
    outside.set_nonblocking(true).unwrap();
    holder.client().sockets.wake("../outside");
    assert!(outside.recv(&mut [0]).is_err());
    // A socket that was removed by hand comes back with a heartbeat, and a grant does not depend on
    // it.
    fs::remove_dir_all(place.wake_folder()).unwrap();
    until(|| place.sockets() == 1).await;
    fs::remove_dir_all(place.wake_folder()).unwrap();
    held.lease.release(&Release::now()).await.unwrap();
    granted(waiting).await;
}

/// Any message, of any length, makes the driver look and nothing else. Fails if the content of a
/// message is trusted, or if one that is empty or too long ends the reading of the socket.
#[tokio::test]
async fn a_forged_wake_up_is_not_believed() {
    let place = Place::new();
    let holder = place.process();
    let _held = place.take(&holder).await;
    let process = place.process();
    let waiting = place.queue(&process).await;
    let woken = || process.client().wakeup.messages.load(Ordering::SeqCst);
    let before = woken();
    let forger = UnixDatagram::unbound().unwrap();
    let socket = place.wake_folder().join(&process.client().process);
    for message in [&b""[..], b"granted", &[0; 4000]] {
        forger.send_to(message, &socket).unwrap();
    }
    until(|| woken() >= before + 3).await;
    until(|| process.client().wakeup.is_at_socket()).await;
    assert!(!waiting.is_finished());
    waiting.abort();
}

/// A path of more than 240 bytes does not fit into a socket address. Hangs if the process falls
/// back to polling, since then no message arrives.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_path_too_long_for_a_socket_is_no_hindrance() {
    let place = Place::at(&format!("{}/{}/locks.db", "a".repeat(120), "b".repeat(120)));
    let holder = place.process();
    let mut held = place.take(&holder).await;
    let process = place.process();
    let waiting = place.queue(&process).await;
    let before = process.client().wakeup.messages.load(Ordering::SeqCst);
    held.lease.release(&Release::now()).await.unwrap();
    granted(waiting).await;
    // The message follows the commit, and the waiter's heartbeat may have seen the grant before.
    until(|| process.client().wakeup.messages.load(Ordering::SeqCst) == before + 1).await;
}

/// `close` takes the client out of use at once and ends it with its last claim, which can be
/// renewed and released until then. Fails by hanging if anything, such as the driver, keeps the
/// client alive.
#[tokio::test]
async fn closing_ends_the_client_and_the_next_request_opens_another() {
    let place = Place::new();
    let process = place.process();
    let mut held = place.take(&process).await.lease;
    let client = Arc::downgrade(&process.client());
    process.close().await.unwrap();
    assert!(client.upgrade().is_some(), "a claim is held on it");
    assert_eq!(held.renew().await.unwrap(), Standing::Held);
    held.release(&Release::now()).await.unwrap();
    drop(held);
    // The thread ends with it, and may have a reference to it for a moment.
    until(|| client.upgrade().is_none()).await;
    assert_eq!(place.sockets(), 0);
    place.take(&process).await.lease.release(&Release::now()).await.unwrap();
    assert!(process.client().path().ends_with("locks.db"));
}

/// A claim outlives the process that made it, and any process with its ticket can renew and release
/// it. After the release the same ticket does nothing to the next holder.
#[tokio::test]
async fn a_ticket_is_good_in_another_process() {
    let place = Place::new();
    let (one, two) = (place.process(), place.process());
    let claim = place.claim();
    let grant = one.acquire(&claim, &Patience::none()).await.unwrap().expect("it is free");
    // The process that made the claim is gone; the claim is not.
    drop((grant, one));
    let mut lease = two.lease_of(&Ticket::of(&claim)).expect("it can be kept by its id");
    assert_eq!(lease.renew().await.unwrap(), Standing::Held);
    assert!(two.acquire(&place.claim(), &Patience::none()).await.unwrap().is_none());
    lease.release(&Release::now()).await.unwrap();
    let mut stale = two.lease_of(&Ticket::of(&claim)).expect("whatever became of it");
    let next = place.take(&two).await;
    assert_eq!(stale.renew().await.unwrap(), Standing::Lost(LossReason::Gone));
    assert_eq!(stale.release(&Release::now()).await.unwrap_err().kind(), ErrorKind::Lost);
    drop(next);
}

/// A ticket comes from elsewhere, and says what it likes: no ttl makes the arithmetic panic.
#[tokio::test]
async fn no_ttl_of_a_ticket_is_too_long() {
    let place = Place::new();
    let process = place.process();
    for ttl in [Duration::MAX, Duration::from_millis(u64::MAX / 2)] {
        let claim = place.claim();
        let grant = process.acquire(&claim, &Patience::none()).await.unwrap().expect("it is free");
        let ticket = Ticket::new(claim.name.clone(), claim.mode, claim.id, ttl);
        let mut lease = process.lease_of(&ticket).expect("it can be kept by its id");
        assert_eq!(lease.renew().await.unwrap(), Standing::Held);
        assert!(process.acquire(&place.claim(), &Patience::none()).await.unwrap().is_none());
        lease.release(&Release::after(ttl)).await.unwrap();
        process.withdraw(&claim).await.unwrap();
        drop(grant);
    }
}

/// A file that is out of reach, and not known to be gone, puts holders in jeopardy: told once per
/// outage, with errors that are retried, and still held if the file comes back in time. The second
/// round fails if the signal is not armed again by a success.
#[tokio::test]
async fn who_holds_is_in_jeopardy_while_the_file_is_out_of_reach() {
    let place = Place::at("folder/locks.db");
    let process = place.process();
    let mut held = place.take(&process).await.lease;
    let (told, signals) = std::sync::mpsc::channel();
    held.watch(Alarm::new(move |signal| drop(told.send(signal))));
    let (folder, away) = (place.folder.path().join("folder"), place.folder.path().join("away"));
    for _ in 0..2 {
        fs::rename(&folder, &away).unwrap();
        // In the place of the folder, so that the file is neither there nor known to be gone.
        fs::write(&folder, "").unwrap();
        let mut signal = None;
        while signal.is_none() {
            signal = signals.try_recv().ok();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(signal, Some(Signal::InJeopardy));
        assert!(held.renew().await.unwrap_err().is_retryable());
        fs::remove_file(&folder).unwrap();
        fs::rename(&away, &folder).unwrap();
        assert_eq!(held.renew().await.unwrap(), Standing::Held);
        assert!(signals.try_recv().is_err(), "once, and no more");
    }
    held.release(&Release::now()).await.unwrap();
}

/// What a lock writes need not survive a power failure, and what is reserved must.
#[tokio::test]
async fn only_what_must_last_waits_for_the_disk() {
    let place = Place::new();
    let process = place.process();
    let client = process.context.client().await.unwrap();
    let synchronous = |tx: &super::super::client::transaction::Transaction<'_>| {
        tx.connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0))
    };
    assert_eq!(client.call(synchronous).await.unwrap(), 1, "normal");
    assert_eq!(client.call_lasting(synchronous).await.unwrap(), 2, "full");
    assert_eq!(client.call(synchronous).await.unwrap(), 1, "normal again");
}
