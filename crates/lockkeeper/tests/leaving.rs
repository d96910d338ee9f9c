//! What a keeper leaves behind in its process: a program of its own, so that nobody else's threads
//! are counted.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task.ok()?).ok()).filter(|name| name == "lockkeeper\n").count()
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}: {} threads", threads());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn a_thread_of_a_keeper_ends_with_it() {
    assert_eq!(threads(), 0);
    let mut keepers = Vec::new();
    for _ in 0..20 {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        assert_eq!(threads(), keepers.len(), "a keeper that is not used has none");
        drop(keeper.lock("n").acquire().await.unwrap());
        keepers.push(keeper);
        until("one each", || threads() == keepers.len());
    }
    keepers.truncate(3);
    until("those in use", || threads() == 3);
    let guard = keepers[0].lock("n").acquire().await.unwrap();
    keepers.clear();
    until("a guard keeps its own", || threads() == 1);
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until("none", || threads() == 0);
}
