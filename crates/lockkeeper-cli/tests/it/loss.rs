//! The lock is lost, and the command with it.

use crate::support::{World, code, eventually, is_alive, state, stderr};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// Prepares, tells that it runs, and goes on for longer than any test, but not for ever.
macro_rules! script {
    ($prepare:literal) => {
        concat!(
            $prepare,
            "; echo $$ > $0.new; mv $0.new $0; \
             i=0; while test $i -lt 4000; do sleep 0.05; i=$((i + 1)); done"
        )
    };
}
const STUBBORN: &str = script!("trap '' TERM");
const OBEDIENT: &str = script!("trap 'exit 0' TERM");

/// Runs `script` under "x" until it has written its number.
fn running(world: &World, options: &[&str], script: &str) -> crate::support::Running {
    let pid = world.file("pid");
    let words = [&["run"], options, &["x", "--", "sh", "-c", script, &pid]].concat();
    let running = world.start(&words);
    eventually("the command runs", || world.path("pid").exists());
    running
}

fn break_x(world: &World) {
    let token = world.token("x");
    let output = world.output(&["break", "x", "--token", &token, "--reason", "stuck\u{1b}[31m"]);
    assert_eq!(code(&output), 0, "{output:?}");
}

#[test]
fn a_broken_lock_ends_the_command_and_says_why() {
    let world = World::new();
    let held = running(&world, &["--ttl", "3s"], OBEDIENT);
    break_x(&world);
    let output = held.finish();
    assert_eq!(code(&output), 79);
    let said = stderr(&output);
    assert!(said.contains("the lock \"x\" was lost: it was broken: stuck\\u{1b}[31m"), "{said}");
    assert!(!is_alive(world.pid()));
}

#[test]
fn a_command_that_does_not_obey_is_killed() {
    let world = World::new();
    let held = running(&world, &["--ttl", "3s", "--grace", "200ms"], STUBBORN);
    break_x(&world);
    assert_eq!(code(&held.finish()), 79);
    assert!(!is_alive(world.pid()));
}

#[test]
fn what_the_command_started_is_killed_although_the_command_has_ended() {
    let world = World::new();
    let script =
        format!("trap 'exit 0' TERM; sh -c \"{}\" $0 & wait", STUBBORN.replace('$', "\\$"));
    let held = running(&world, &["--ttl", "3s", "--grace", "200ms"], &script);
    break_x(&world);
    assert_eq!(code(&held.finish()), 79);
    eventually("the grandchild is gone", || !is_alive(world.pid()));
}

#[test]
fn losing_one_of_several_names_is_losing_all() {
    let world = World::new();
    let pid = world.file("pid");
    let held = world.start(&["run", "--ttl", "3s", "w,x,y", "--", "sh", "-c", OBEDIENT, &pid]);
    eventually("the command runs", || world.path("pid").exists());
    break_x(&world);
    let output = held.finish();
    assert_eq!(code(&output), 79);
    assert!(stderr(&output).contains("the lock \"x\" was lost"), "{output:?}");
    assert_eq!(world.code(&["run", "-n", "w,x,y", "true"]), 0);
}

#[test]
fn nobody_reading_our_words_does_not_save_the_command() {
    let world = World::new();
    let chatty = "trap '' TERM; echo $$ > $0.new; mv $0.new $0; \
                  while :; do echo a line that nobody will ever read >&2; done";
    let mut held = running(&world, &["--ttl", "3s", "--grace", "200ms"], chatty);
    // It never sleeps before.
    eventually("the pipe is full", || state(world.pid()) == Some('S'));
    break_x(&world);
    assert_eq!(held.wait().code(), Some(79));
    assert!(!is_alive(world.pid()));
}

#[test]
fn the_next_one_gets_in_after_a_crash() {
    let world = World::new();
    let mut held = running(&world, &["--ttl", "1s"], STUBBORN);
    let mut next = world.start(&["run", "x", "sh", "-c", "exit 4"]);
    eventually("it waits", || world.waiters("x") == 1);
    held.signal(Signal::SIGKILL);
    assert_eq!(next.wait().code(), Some(4));
}

#[test]
fn a_command_that_holds_too_long_is_ended() {
    let world = World::new();
    let start = Instant::now();
    let held = running(&world, &["--max-hold", "700ms", "--ttl", "20s"], OBEDIENT);
    let output = held.finish();
    assert_eq!(code(&output), 79);
    assert!(stderr(&output).contains("max_hold"), "{output:?}");
    assert!(start.elapsed() >= Duration::from_millis(700), "not by the grace earlier");
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 0, "and the lock is free");
}

#[test]
fn with_warn_the_command_goes_on() {
    let world = World::new();
    let script =
        "echo $$ > $0.new; mv $0.new $0; while test ! -e $0.end; do sleep 0.02; done; exit 6";
    let held = running(&world, &["--ttl", "3s", "--on-lost", "warn"], script);
    break_x(&world);
    eventually("another can have it", || world.code(&["run", "-n", "x", "true"]) == 0);
    assert!(is_alive(world.pid()));
    // Well past the point where it would have been killed.
    std::thread::sleep(Duration::from_secs(4));
    std::fs::write(world.path("pid.end"), "").unwrap();
    let output = held.finish();
    assert_eq!(code(&output), 6);
    assert_eq!(stderr(&output).matches("was lost").count(), 1, "{output:?}");
}

#[test]
fn a_lock_that_cannot_be_renewed_ends_even_a_stubborn_command_before_it_runs_out() {
    let world = World::new();
    let stamps = "trap '' TERM; echo $$ > $0.new; mv $0.new $0; \
                  while :; do date +%s%N > $0.stamp.new; mv $0.stamp.new $0.stamp; sleep 0.01; done";
    let held = running(&world, &["--ttl", "4s", "--grace", "500ms"], stamps);
    let file = rusqlite::Connection::open(world.path("locks.db")).unwrap();
    file.busy_timeout(Duration::from_secs(30)).unwrap();
    // Lets nobody write from just after a renewal on, so that it is the last one.
    let mut expiry = 0;
    eventually("the lock cannot be renewed", || {
        let left = world.show("x")["holders"][0]["expires_ms"].as_u64().unwrap();
        let shown = Instant::now();
        expiry = nanos_now() + u128::from(left) * 1_000_000;
        if left < 3500 {
            return false;
        }
        file.execute_batch("BEGIN IMMEDIATE").unwrap();
        let in_time = shown.elapsed() < Duration::from_millis(500);
        if !in_time {
            file.execute_batch("ROLLBACK").unwrap();
        }
        in_time
    });
    let output = held.finish();
    assert_eq!(code(&output), 79, "{output:?}");
    assert!(stderr(&output).contains("\"x\" cannot be renewed"), "{output:?}");
    assert!(!is_alive(world.pid()));
    let last: u128 = world.read("pid.stamp").trim().parse().unwrap();
    assert!(last < expiry, "still at work {} ms after the end", (last - expiry) / 1_000_000);
    file.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn a_lock_is_kept_for_longer_than_its_ttl() {
    let world = World::new();
    let _held = running(&world, &["--ttl", "2s"], OBEDIENT);
    let token = world.token("x");
    std::thread::sleep(Duration::from_millis(4500));
    assert_eq!(world.token("x"), token);
    assert!(is_alive(world.pid()));
}

fn nanos_now() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}
