//! Many processes at one file at the same moment.

use crate::support::{Running, World, code, stderr};

/// How many threads' worth of waits for something to happen this process has had so far.
#[cfg(target_os = "linux")]
fn sleeps(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .map(count)
        .sum()
}

/// A file that does not exist yet, made by all of them at once.
#[test]
fn everyone_in_a_crowd_gets_its_turn_in_order() {
    const CROWD: usize = 200;
    let world = World::new();
    let script = format!("echo $LOCKKEEPER_TOKEN >> {}", world.file("turns"));
    let runs: Vec<Running> =
        (0..CROWD).map(|_| world.start(&["run", "x", "--", "sh", "-c", &script])).collect();
    let outputs: Vec<_> = runs.into_iter().map(Running::finish).collect();
    for output in &outputs {
        assert_eq!(code(output), 0, "{}", stderr(output));
    }
    let turns: Vec<u64> = world.read("turns").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(turns.len(), CROWD);
    // A token is the place in the queue: who asked earlier has a smaller one.
    assert!(turns.is_sorted_by(|earlier, later| earlier < later), "{turns:?}");
}

/// Looking at the file every few milliseconds, as where nobody can wake it, is hundreds of sleeps
/// a second.
#[cfg(target_os = "linux")]
#[test]
fn to_wait_is_to_sleep() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let mut waiter = world.start(&["run", "x", "true"]);
    crate::support::eventually("it waits", || world.waiters("x") == 1);
    let pid = waiter.child().id();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let before = sleeps(pid);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let slept = sleeps(pid) - before;
    assert!(slept < 100, "{slept} times awake in three seconds of waiting");
}

/// The file goes away under those who hold and those who wait.
#[test]
fn a_waiting_run_ends_when_its_file_is_deleted() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    // It is no outage, which might pass.
    let store = format!("{}?outage=10m", world.store());
    let waiter = world.start(&["run", "--store", &store, "x", "true"]);
    crate::support::eventually("it waits", || world.waiters("x") == 1);
    std::fs::remove_file(world.path("locks.db")).unwrap();
    let output = waiter.finish();
    assert_eq!(code(&output), 69, "{}", stderr(&output));
    assert!(stderr(&output).contains("deleted or replaced"), "{}", stderr(&output));
}
