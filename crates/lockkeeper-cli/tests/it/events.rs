//! `events`: what happens to locks, seen from outside.

use crate::support::{Running, World, code, eventually, lockkeeper, stdout};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The lines of `events -f`, once its first look is behind it: what is there at that look is not told, so
/// something is made to happen until it is.
fn follow(world: &World, options: &[&str]) -> (Running, Receiver<String>) {
    let words = [&["events", "-f", "--every", "100ms"], options].concat();
    let mut running = world.start(&words);
    let lines = BufReader::new(running.child().stdout.take().unwrap()).lines();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    for probe in 0.. {
        let name = format!("jobs/probe-{probe}");
        assert_eq!(world.code(&["run", &name, "--", "sleep", "1"]), 0);
        while let Ok(line) = told.recv_timeout(Duration::from_secs(2)) {
            if line.contains(&name) && line.contains("released") {
                return (running, told);
            }
        }
        assert!(running.child().try_wait().unwrap().is_none(), "it ended");
    }
    unreachable!("it never looks");
}

fn next(told: &Receiver<String>) -> String {
    told.recv_timeout(Duration::from_secs(60)).expect("another event")
}

#[test]
fn queued_granted_released_each_a_line() {
    let world = World::new();
    let (mut running, told) = follow(&world, &["jobs/"]);
    let next = || next(&told);
    let _other = world.start(&["run", "other", "--", "sleep", "600"]);
    let mut holder = world.holder(&[], "jobs/night");
    let granted = next();
    assert!(granted[8..].starts_with("  granted   jobs/night  "), "{granted}");
    assert!(granted.contains(&format!("token {}", world.token("jobs/night"))), "{granted}");
    assert!(granted.contains(&format!(" pid {} ", holder.child().id())), "{granted}");
    assert!(granted.contains("waited "), "{granted}");
    let mut waiter = world.start(&["run", "jobs/night", "--", "sleep", "2"]);
    let queued = next();
    assert!(queued.contains("  queued    jobs/night  "), "{queued}");
    assert!(queued.contains(&format!(" pid {} ", waiter.child().id())), "{queued}");
    holder.signal(Signal::SIGTERM);
    let (released, granted) = (next(), next());
    assert!(
        released.contains("  released  jobs/night  ") && released.contains("held "),
        "{released}"
    );
    assert!(granted.contains("  granted   jobs/night  "), "{granted}");
    assert!(next().contains("  released  jobs/night  "));
    waiter.wait();
    running.signal(Signal::SIGINT);
    running.wait();
}

#[test]
fn a_waiter_that_gives_up_left_and_a_holder_that_died_expired() {
    let world = World::new();
    let (_running, told) = follow(&world, &["--json"]);
    let next = || -> Value { serde_json::from_str(&next(&told)).unwrap() };
    let mut holder = world.holder(&["--ttl", "3s"], "x");
    assert_eq!(next()["event"], "granted");
    assert_eq!(world.code(&["run", "-w", "1s", "x", "true"]), 75);
    let (queued, left) = (next(), next());
    assert_eq!((&queued["event"], &left["event"]), (&"queued".into(), &"left".into()), "{left}");
    assert!(left["waited_ms"].as_u64().is_some() && left["name"] == "x", "{left}");
    holder.signal(Signal::SIGKILL);
    let expired = next();
    assert_eq!(expired["event"], "expired", "{expired}");
    assert!(expired["token"].as_u64().is_some() && expired["at"].is_string(), "{expired}");
}

#[test]
fn it_ends_when_nobody_reads() {
    let world = World::new();
    let (mut running, told) = follow(&world, &[]);
    // The reader ends, and with it the pipe, at the first line that nobody takes.
    drop(told);
    eventually("it ends", || {
        assert_eq!(world.code(&["run", "x", "--", "sleep", "1"]), 0);
        running.child().try_wait().unwrap().is_some()
    });
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(stdout(&world.output(&["ls", "--json"])), "[]\n");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new();
    for (words, expected) in [
        (&["events"][..], 64),
        (&["events", "-f", "--every", "1ms"], 64),
        (&["events", "-f", "--every", "5"], 64),
        (&["events", "-f", "--store", "memory:"], 64),
        (&["events", "-f", "--store", "redis://127.0.0.1:1"], 69),
    ] {
        let output = world.output(words);
        assert_eq!(code(&output), expected, "{words:?}: {output:?}");
    }
    let help = stdout(&lockkeeper(&["events", "--help"]).output().unwrap());
    assert!(help.contains("between two looks"), "{help}");
}
