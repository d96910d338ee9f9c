//! `wait`: until a name is free, taking nothing.

use crate::support::{World, code, lockkeeper, stderr, stdout};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

#[test]
fn a_free_name_is_not_waited_for_and_nothing_is_left() {
    let world = World::new();
    for words in [&["wait", "x"][..], &["wait", "-w", "0", "x"], &["wait", "-w", "5s", "x"]] {
        let output = world.output(words);
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!((stdout(&output), stderr(&output)), (String::new(), String::new()));
    }
    assert_eq!(stdout(&world.output(&["ls", "--json"])), "[]\n");
}

#[test]
fn it_returns_when_the_name_is_free_and_stands_in_nobodys_way() {
    let world = World::new();
    let mut holder = world.holder(&[], "x");
    let mut waiting = world.start(&["wait", "x"]);
    let mut line = String::new();
    BufReader::new(waiting.child().stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let pid = holder.child().id();
    assert!(line.starts_with("lockkeeper: waiting for \"x\": held by "), "{line}");
    assert!(line.contains(&format!(" pid {pid} ")), "{line}");
    // It is no claim: nobody would see it in the queue.
    assert_eq!(world.waiters("x"), 0);
    assert!(waiting.child().try_wait().unwrap().is_none());
    holder.signal(Signal::SIGTERM);
    assert_eq!(waiting.wait().code(), Some(0));
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 0);
}

#[test]
fn the_limit_is_75_and_never_early() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let start = Instant::now();
    let output = world.output(&["wait", "-w", "1.2s", "x"]);
    assert!(start.elapsed() >= Duration::from_millis(1200));
    assert_eq!(code(&output), 75, "{output:?}");
    assert!(stderr(&output).contains("\"x\" is not free after 1s: held by "), "{output:?}");
    let output = world.output(&["wait", "-w", "0", "x"]);
    assert_eq!(code(&output), 75, "{output:?}");
    assert!(stderr(&output).starts_with("lockkeeper: \"x\" is not free: held by "), "{output:?}");
}

#[test]
fn a_shared_lock_is_free_when_the_last_reader_has_left() {
    let world = World::new();
    let mut first = world.holder(&["--shared"], "x");
    let second = world.holder(&["--shared"], "x");
    first.signal(Signal::SIGTERM);
    first.wait();
    assert_eq!(world.code(&["wait", "-w", "100ms", "x"]), 75);
    drop(second);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new();
    let long = "n".repeat(300);
    for (words, expected) in [
        (&["wait"][..], 64),
        (&["wait", ""], 64),
        (&["wait", &long], 64),
        (&["wait", "-w", "5", "x"], 64),
        (&["wait", "-w", "-5s", "x"], 64),
        (&["wait", "--store", "memory:", "x"], 64),
        (&["wait", "--store", "redis://127.0.0.1:1", "x"], 69),
    ] {
        let output = world.output(words);
        assert_eq!(code(&output), expected, "{words:?}: {output:?}");
    }
    let help = lockkeeper(&["wait", "--help"]).output().unwrap();
    assert!(code(&help) == 0 && stdout(&help).contains("75"), "{help:?}");
}
