//! Threads as owners.

use lockkeeper::blocking;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_lock_made_by_one_thread_excludes_all_that_use_it() {
    let keeper = blocking::connect("memory:").unwrap();
    let lock = keeper.lock("n");
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let guard = lock.acquire().unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(30));
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().unwrap();
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 1, "threads inside at once");
}

#[test]
fn a_guard_just_dropped_is_not_in_its_owners_way() {
    let keeper = blocking::connect("memory:").unwrap();
    let lock = keeper.rw_lock("n");
    let mut last = None;
    for _ in 0..200 {
        drop(lock.read().acquire().unwrap());
        let write = lock.write().acquire().unwrap();
        assert!(write.token() > last, "two grants with one token");
        last = write.token();
    }
}

#[test]
fn a_period_binds_the_thread_that_began_it() {
    let keeper = blocking::connect("memory:").unwrap();
    let job = keeper.lock("nightly").min_hold(Duration::from_secs(3600));
    job.acquire().unwrap().release().unwrap();
    assert!(job.try_acquire().unwrap().is_none(), "ran twice in one period");
}

#[test]
fn one_thread_takes_several_permits() {
    let keeper = blocking::connect("memory:").unwrap();
    let gate = keeper.semaphore("n", 2);
    let (_one, _two) = (gate.acquire().unwrap(), gate.acquire().unwrap());
    assert!(gate.try_acquire().unwrap().is_none());
}

#[test]
fn a_thread_that_lost_its_office_campaigns_again() {
    let store = std::sync::Arc::new(lockkeeper::backend::memory::Memory::new());
    let keeper = blocking::Keeper::new(store.clone()).unwrap();
    let operator = blocking::Keeper::new(store).unwrap();
    let mut terms = Vec::new();
    let outcome = keeper.election("office").lead(|office| {
        terms.push(office.term());
        if terms.len() == 1 {
            operator.break_hold("office", office.term(), "to see it come back").unwrap();
            // What it did in a term that was lost does not count.
            return Ok("stale");
        }
        office.check().map(|()| "done")
    });
    assert_eq!(outcome.unwrap(), "done");
    assert!(terms.len() == 2 && terms[0] < terms[1], "{terms:?}");
    assert!(operator.show("office").unwrap().holders.is_empty(), "it did not resign");
}
