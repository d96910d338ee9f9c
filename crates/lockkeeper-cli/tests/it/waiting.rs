//! When somebody else has the lock.

use crate::support::{World, code, eventually, stderr};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

#[test]
fn not_acquired_is_75_or_what_was_asked_and_says_who_has_it() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    for (options, wanted) in [
        (&["-n"][..], 75),
        (&["-w", "0"], 75),
        (&["-w", "100ms"], 75),
        (&["-n", "-E", "0"], 0),
        (&["-w", "100ms", "-E", "9"], 9),
        (&["-n", "-E", "255"], 255),
    ] {
        let marker = world.file("ran");
        let words = [&["run"], options, &["x", "--", "touch", &marker]].concat();
        let output = world.output(&words);
        assert_eq!(code(&output), wanted, "{options:?}");
        assert!(stderr(&output).contains("sleep 600"), "{output:?}");
        assert!(stderr(&output).contains(" pid "), "{output:?}");
        assert!(!world.path("ran").exists());
    }
    assert_eq!(world.waiters("x"), 0);
}

#[test]
fn one_of_several_names_is_enough_to_wait_and_the_others_are_given_back() {
    let world = World::new();
    let _holder = world.holder(&[], "b");
    for options in [&["-n"][..], &["-w", "50ms"]] {
        let words = [&["run"], options, &["a,b", "true"]].concat();
        let output = world.output(&words);
        assert_eq!(code(&output), 75);
        assert!(stderr(&output).contains("\"b\""), "{output:?}");
        assert_eq!(world.code(&["run", "-n", "a", "true"]), 0);
    }
}

#[test]
fn the_limit_is_never_early() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let start = Instant::now();
    assert_eq!(world.code(&["run", "-w", "1.5s", "x", "true"]), 75);
    assert!(start.elapsed() >= Duration::from_millis(1500));
}

#[test]
fn a_long_wait_says_for_whom_and_in_which_place() {
    let world = World::new();
    let mut holder = world.holder(&[], "x");
    let holder_pid = holder.child().id();
    let mut first = world.start(&["run", "x", "true"]);
    eventually("the first waits", || world.waiters("x") == 1);
    let mut second = world.start(&["run", "x", "true"]);
    for (waiter, place) in [(&mut first, 1), (&mut second, 2)] {
        let mut said = BufReader::new(waiter.child().stderr.as_mut().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("lockkeeper: waiting for \"x\": held by "), "{line}");
        assert!(line.contains(&format!(" pid {holder_pid} 'sh -c ")), "{line}");
        assert!(line.ends_with(&format!("s; place {place} in the queue\n")), "{line}");
    }
    // Time enough to say it again.
    std::thread::sleep(Duration::from_millis(2500));
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.wait().code(), Some(143));
    let (first, second) = (first.finish(), second.finish());
    assert_eq!((code(&first), code(&second)), (0, 0));
    assert_eq!(stderr(&first), "", "once is enough while nothing changes");
}

#[test]
fn a_note_cannot_play_with_the_terminal_of_those_who_wait() {
    let world = World::new();
    let pid = world.file("pid");
    let script = format!(": \u{1b}[2J; echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600");
    let _holder = world.start(&["run", "x", "--", "sh", "-c", &script]);
    eventually("the command runs", || world.path("pid").exists());
    for output in [
        world.output(&["run", "-n", "x", "true"]),
        world.output(&["run", "-w", "1.2s", "x", "true"]),
        world.output(&["ls"]),
        world.output(&["show", "x"]),
    ] {
        let printed = [output.stdout.clone(), output.stderr.clone()].concat();
        assert!(!printed.contains(&0x1b), "{output:?}");
        assert!(String::from_utf8_lossy(&printed).contains(r"\u{1b}[2J"), "{output:?}");
    }
    assert!(world.show("x")["holders"][0]["note"].as_str().unwrap().contains("\u{1b}[2J"));
}
