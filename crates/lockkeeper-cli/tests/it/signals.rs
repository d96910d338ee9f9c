//! Signals reach the command, and those who wait.

use crate::support::{
    World, children_of, code, eventually, is_alive, is_ignored_here, state, stdout,
};
use nix::sys::signal::{Signal, kill};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn signals_reach_the_command_and_its_own_exit_code_counts() {
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
    ] {
        if is_ignored_here(signal) {
            continue;
        }
        let world = World::new();
        let script = format!(
            "trap 'exit 42' {name}; echo > {}; while :; do sleep 0.05; done",
            world.file("ready")
        );
        let mut running = world.start(&["run", "x", "--", "sh", "-c", &script]);
        eventually("the trap is set", || world.path("ready").exists());
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(42), "{name}");
    }
}

#[test]
fn a_signal_reaches_all_that_the_command_started() {
    let world = World::new();
    let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", world.file("pid"));
    let mut running = world.start(&["run", "x", "--", "sh", "-c", &script]);
    eventually("the grandchild runs", || world.path("pid").exists());
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(143));
    eventually("the grandchild is gone", || !is_alive(world.pid()));
    assert_eq!(world.code(&["show", "x"]), 1);
}

#[test]
fn a_signal_while_waiting_leaves_the_queue() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    for (signal, wanted) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        if is_ignored_here(signal) {
            continue;
        }
        let mut waiter = world.start(&["run", "x", "true"]);
        eventually("it waits", || world.waiters("x") == 1);
        waiter.signal(signal);
        assert_eq!(waiter.wait().code(), Some(wanted));
        assert_eq!(world.waiters("x"), 0, "nothing of it is left");
    }
}

#[test]
fn a_signal_in_the_first_moments_ends_it_with_the_same_code() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    for attempt in 0..150 {
        let mut waiter = world.start(&["run", "x", "true"]);
        // The first trace of our own code that can be seen from outside: until `main` runs, a
        // signal ends this as any program.
        let status = format!("/proc/{}/status", waiter.child().id());
        while !has_begun(&std::fs::read_to_string(&status).unwrap_or_default()) {
            assert_eq!(waiter.child().try_wait().unwrap(), None);
        }
        waiter.signal(Signal::SIGTERM);
        assert_eq!(waiter.wait().code(), Some(143), "attempt {attempt}");
    }
    assert_eq!(world.waiters("x"), 0, "nothing of them is left");
}

/// Whether a process has blocked a signal or started a thread.
fn has_begun(status: &str) -> bool {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let blocks = field("SigBlk:").is_some_and(|mask| mask.bytes().any(|digit| digit != b'0'));
    blocks || field("Threads:").is_some_and(|threads| threads != "1")
}

#[test]
fn a_harmless_signal_does_not_end_the_wait() {
    let world = World::new();
    let mut holder = world.holder(&[], "x");
    let mut waiter = world.start(&["run", "x", "sh", "-c", "exit 5"]);
    eventually("it waits", || world.waiters("x") == 1);
    waiter.signal(Signal::SIGWINCH);
    waiter.signal(Signal::SIGCONT);
    holder.signal(Signal::SIGTERM);
    assert_eq!(waiter.wait().code(), Some(5));
}

#[test]
fn the_command_dies_with_lockkeeper() {
    let world = World::new();
    let mut holder = world.holder(&[], "x");
    let command = world.pid();
    assert!(is_alive(command));
    // Also without the helper that ends what the command started.
    let helpers: Vec<_> =
        children_of(holder.child().id()).into_iter().filter(|pid| *pid != command).collect();
    assert_eq!(helpers.len(), 1);
    kill(helpers[0], Signal::SIGKILL).unwrap();
    holder.signal(Signal::SIGKILL);
    holder.wait();
    eventually("the command is gone", || !is_alive(command));
}

#[test]
fn what_the_command_started_dies_with_lockkeeper_too() {
    let world = World::new();
    let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", world.file("pid"));
    let mut running = world.start(&["run", "x", "--", "sh", "-c", &script]);
    eventually("the grandchild runs", || world.path("pid").exists());
    running.signal(Signal::SIGKILL);
    running.wait();
    eventually("the grandchild is gone", || !is_alive(world.pid()));
}

#[test]
fn a_signal_ignored_from_the_start_stays_ignored() {
    let world = World::new();
    let script = format!("grep SigIgn /proc/$$/status; echo > {}; read end", world.file("ready"));
    let nohup = r#"trap "" HUP; exec "$0" "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", nohup, env!("CARGO_BIN_EXE_lockkeeper"), "run", "x", "sh", "-c", &script]);
    command.env("LOCKKEEPER_STORE", world.store()).env_remove("LOCKKEEPER_OWNER");
    let mut running =
        crate::support::Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    eventually("the command runs", || world.path("ready").exists());
    running.signal(Signal::SIGHUP);
    drop(running.child().stdin.take());
    let output = running.finish();
    assert_eq!(code(&output), 1, "ended by the end of its input, not by the signal: {output:?}");
    let mask = stdout(&output).trim().rsplit('\t').next().unwrap().to_owned();
    assert_eq!(
        u64::from_str_radix(&mask, 16).unwrap() & 1,
        1,
        "and the command ignores it: {mask}"
    );
}

#[test]
fn a_suspended_command_goes_on_and_one_stopped_on_purpose_does_not() {
    let world = World::new();
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; read end; exit 3", world.file("pid"));
    let mut command = world.command(&["run", "x", "sh", "-c", &script]);
    let mut running = crate::support::Running::start(
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()),
    );
    eventually("the command runs", || world.path("pid").exists());
    let mut said = BufReader::new(running.child().stderr.take().unwrap());
    let mut line = String::new();
    running.signal(Signal::SIGTSTP);
    said.read_line(&mut line).unwrap();
    assert!(line.contains("cannot be suspended"), "{line}");
    eventually("it goes on", || state(world.pid()) == Some('S'));
    kill(world.pid(), Signal::SIGSTOP).unwrap();
    eventually("it is stopped", || state(world.pid()) == Some('T'));
    // Time enough to be woken, were it so.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(state(world.pid()), Some('T'));
    kill(world.pid(), Signal::SIGCONT).unwrap();
    drop(running.child().stdin.take());
    assert_eq!(code(&running.finish()), 3);
}
