//! `lead` and `leader`.

use crate::support::{Running, World, code, eventually, is_alive, lockkeeper, stderr, stdout};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};

/// Starts a candidate whose command appends its term to `file`, and stays.
fn candidate(world: &World, options: &[&str], file: &str) -> Running {
    let script = format!("echo $LOCKKEEPER_TOKEN >> {}; exec sleep 600", world.file(file));
    world.start(&[&["lead"], options, &["office", "--", "sh", "-c", &script]].concat())
}

fn terms(world: &World, file: &str) -> Vec<u64> {
    world.read(file).lines().map(|line| line.parse().unwrap()).collect()
}

fn leader(world: &World) -> Value {
    let output = world.output(&["leader", "--json", "office"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn break_office(world: &World) {
    let token = world.token("office");
    assert_eq!(world.code(&["break", "office", "--token", &token, "--reason", "test"]), 0);
}

#[test]
fn a_leader_that_lost_the_lead_is_stopped_and_campaigns_again() {
    let world = World::new();
    let mut first = candidate(&world, &["--note", "http://one"], "one");
    eventually("the first leads", || terms(&world, "one").len() == 1);
    assert_eq!(leader(&world)["leader"]["note"], "http://one");
    assert_eq!(leader(&world)["leader"]["term"], terms(&world, "one")[0]);
    let mut second = candidate(&world, &["--note", "http://two"], "two");
    eventually("the second is a candidate", || world.waiters("office") == 1);
    break_office(&world);
    eventually("the second leads", || terms(&world, "two").len() == 1);
    assert!(terms(&world, "two")[0] > terms(&world, "one")[0]);
    eventually("the first campaigns again", || world.waiters("office") == 1);
    break_office(&world);
    eventually("the first leads again", || terms(&world, "one").len() == 2);
    for (candidate, code) in [(&mut second, 143), (&mut first, 143)] {
        candidate.signal(Signal::SIGTERM);
        assert_eq!(candidate.wait().code(), Some(code));
    }
    assert_eq!(leader(&world)["leader"], Value::Null);
    assert_eq!(stdout(&world.output(&["ls", "--json"])), "[]\n");
}

/// The command ends when the lead is lost, and leaves a process that does not: until that is killed,
/// nobody reads signals.
#[test]
fn a_signal_after_the_command_has_ended_is_not_forgotten() {
    let world = World::new();
    let script = format!(
        "trap '' TERM; sleep 600 & trap - TERM; echo $$ >> {}; exec sleep 600",
        world.file("pid")
    );
    let mut leading = world.start(&["lead", "office", "--", "sh", "-c", &script]);
    eventually("it leads", || world.read("pid").ends_with('\n'));
    let command = Pid::from_raw(world.read("pid").trim().parse().unwrap());
    break_office(&world);
    eventually("the command has ended", || !is_alive(command));
    leading.signal(Signal::SIGTERM);
    assert_eq!(leading.wait().code(), Some(143));
}

#[test]
fn a_command_that_ended_by_itself_ends_the_candidacy() {
    let world = World::new();
    let output = world.output(&["lead", "office", "--", "sh", "-c", "exit 7"]);
    assert_eq!(code(&output), 7, "{output:?}");
    assert!(stderr(&output).starts_with("lockkeeper: leads \"office\", term "), "{output:?}");
    // A command that ends like a lost lock is not mistaken for one.
    assert_eq!(world.code(&["lead", "office", "--", "sh", "-c", "exit 79"]), 79);
    assert_eq!(world.code(&["lead", "office", "--", "no-such-command"]), 127);
    assert_eq!(world.code(&["lead", "--restart", "office", "--", "no-such-command"]), 127);
    assert_eq!(stdout(&world.output(&["ls", "--json"])), "[]\n");
}

#[test]
fn with_restart_it_runs_again_in_a_new_term_until_it_is_told_to_end() {
    let world = World::new();
    let file = world.file("terms");
    let script = format!(
        "echo $LOCKKEEPER_TOKEN >> {file}; test $(wc -l < {file}) = 3 && exec sleep 600; exit 3"
    );
    let mut running = world.start(&["lead", "--restart", "office", "--", "sh", "-c", &script]);
    eventually("it runs a third time", || terms(&world, "terms").len() == 3);
    let found = terms(&world, "terms");
    assert!(found.is_sorted_by(|one, two| one < two), "{found:?}");
    running.signal(Signal::SIGTERM);
    let output = running.finish();
    assert_eq!(code(&output), 143);
    assert!(
        stderr(&output).contains("the command ended with 3; campaigns again in 1s"),
        "{output:?}"
    );
    assert!(stderr(&output).contains("campaigns again in 2s"), "{output:?}");
    assert_eq!(terms(&world, "terms").len(), 3);
}

#[test]
fn a_candidate_that_waits_ends_by_a_signal_and_leaves_the_queue() {
    let world = World::new();
    let holder = world.holder(&[], "office");
    let mut waiting = candidate(&world, &[], "never");
    eventually("it is a candidate", || world.waiters("office") == 1);
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.wait().code(), Some(143));
    assert_eq!(world.waiters("office"), 0);
    assert!(!world.path("never").exists());
    drop(holder);
}

#[test]
fn a_leader_that_is_killed_takes_its_command_along() {
    let world = World::new();
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", world.file("pid"));
    let mut running = world.start(&["lead", "--ttl", "1s", "office", "--", "sh", "-c", &script]);
    eventually("the command runs", || world.path("pid").exists());
    running.signal(Signal::SIGKILL);
    eventually("the command is gone", || !is_alive(world.pid()));
    assert_eq!(world.code(&["wait", "-w", "60s", "office"]), 0);
}

#[test]
fn who_leads_is_told_once_and_followed() {
    let world = World::new();
    let output = world.output(&["leader", "office"]);
    assert_eq!((code(&output), stdout(&output)), (1, String::new()), "{output:?}");
    assert!(stderr(&output).contains("nobody leads \"office\""), "{output:?}");
    let mut following = world.start(&["leader", "-f", "office"]);
    let mut lines = BufReader::new(following.child().stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().ends_with("  nobody leads"));
    let mut first = candidate(&world, &["--note", "here\u{1b}[2J"], "one");
    let line = next();
    eventually("its command runs", || terms(&world, "one").len() == 1);
    let term = terms(&world, "one")[0].to_string();
    assert!(line.contains(r" 'here\u{1b}[2J' leads for "), "{line}");
    assert!(line.ends_with(&format!(", term {term}")), "{line}");
    let output = world.output(&["leader", "office"]);
    assert_eq!(code(&output), 0, "{output:?}");
    for part in ["leader  ", "\nnote    here", "\nsince   ", "\nterm    "] {
        assert!(stdout(&output).contains(part), "{output:?}");
    }
    first.signal(Signal::SIGTERM);
    assert!(next().ends_with("  nobody leads"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new();
    let long = "n".repeat(2000);
    for (words, expected) in [
        (&["lead"][..], 64),
        (&["lead", "office"], 64),
        (&["lead", "", "true"], 64),
        (&["lead", "office", "--bogus", "true"], 64),
        (&["lead", "--ttl", "1ms", "office", "true"], 64),
        (&["lead", "--ttl", "30", "office", "true"], 64),
        (&["lead", "--note", &long, "office", "true"], 64),
        (&["lead", "--store", "memory:", "office", "true"], 64),
        (&["lead", "--store", "redis://127.0.0.1:1", "office", "true"], 69),
        (&["leader"], 64),
        (&["leader", ""], 64),
        (&["leader", "--store", "memory:", "office"], 64),
        (&["leader", "--store", "redis://127.0.0.1:1", "office"], 69),
        (&["leader", "-f", "--store", "redis://127.0.0.1:1", "office"], 69),
    ] {
        let output = world.output(words);
        assert_eq!(code(&output), expected, "{words:?}: {output:?}");
        assert!(!stderr(&output).is_empty(), "{words:?}");
    }
    let help = lockkeeper(&["lead", "--help"]).output().unwrap();
    assert!(stdout(&help).contains("--restart") && stdout(&help).contains("LOCKKEEPER_TOKEN"));
}
