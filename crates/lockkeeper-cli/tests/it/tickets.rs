//! `lock`, `keep` and `unlock`, each a process of its own.

use crate::support::{Running, World, code, eventually, stderr, stdout};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::{Output, Stdio};

impl World {
    /// The ticket of a lock that is taken now.
    pub(crate) fn ticket(&self, options: &[&str], name: &str) -> String {
        let output = self.output(&[&["lock", "-n"], options, &[name]].concat());
        assert_eq!(code(&output), 0, "{output:?}");
        stdout(&output).trim().to_owned()
    }

    fn is_free(&self, name: &str) -> bool {
        self.code(&["run", "-n", name, "true"]) == 0
    }

    /// `lockkeeper WORDS…` with this on standard input.
    pub(crate) fn output_with_input(&self, words: &[&str], input: &str) -> Output {
        std::fs::write(self.path("input"), input).unwrap();
        let input = std::fs::File::open(self.path("input")).unwrap();
        self.command(words).stdin(input).output().unwrap()
    }
}

#[test]
fn one_process_locks_another_keeps_and_a_third_unlocks() {
    let world = World::new();
    let ticket = world.ticket(&["--ttl", "30s", "--note", "deploy"], "x");
    assert!(ticket.starts_with("lk1:x:30000:") && ticket.ends_with(":x"), "{ticket}");
    let token = world.token("x");
    assert!(ticket.contains(&token), "{ticket}");
    let waits = world.output(&["run", "-n", "x", "true"]);
    assert_eq!(code(&waits), 75);
    assert!(stderr(&waits).contains("deploy"), "{waits:?}");

    let kept = world.output(&["keep", "--for", "10m", &ticket]);
    assert_eq!(code(&kept), 0, "{kept:?}");
    // A little less than was asked for: clocks drift.
    assert!(stdout(&kept).starts_with("\"x\" is valid for 9m "), "{kept:?}");
    let left = world.show("x")["holders"][0]["expires_ms"].as_u64().unwrap();
    assert!(left > 500_000, "{left}");
    assert_eq!(world.token("x"), token);
    // The last renewal counts.
    let kept = world.output(&["keep", "--json", &ticket]);
    let json: Value = serde_json::from_slice(&kept.stdout).unwrap();
    assert_eq!((&json[0]["name"], &json[0]["kept"]), (&"x".into(), &true.into()));
    let valid = json[0]["valid_ms"].as_u64().unwrap();
    assert!((20_000..30_000).contains(&valid), "{valid}");

    let unlocked = world.output(&["unlock", &ticket]);
    assert_eq!((code(&unlocked), stdout(&unlocked)), (0, "\"x\" is given back\n".into()));
    assert!(world.is_free("x"));
}

#[test]
fn a_ticket_outlives_everyone_who_had_it() {
    let world = World::new();
    let script =
        format!("\"$0\" lock x --ttl 60s > {0}.new && mv {0}.new {0}; sleep 600", world.file("t"));
    let words = ["run", "other", "--", "sh", "-c", &script, env!("CARGO_BIN_EXE_lockkeeper")];
    let mut first = world.start(&words);
    eventually("it is locked", || world.path("t").exists());
    first.signal(Signal::SIGKILL);
    first.wait();
    let file = world.file("t");
    assert_eq!(world.code(&["keep", "--ticket-file", &file]), 0);

    let script =
        format!("echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600", pid = world.file("pid"));
    let words = ["run", "--ticket-file", &file, "--", "sh", "-c", &script];
    let mut second = world.start(&words);
    eventually("the command runs", || world.path("pid").exists());
    second.signal(Signal::SIGKILL);
    second.wait();
    assert!(!world.is_free("x"));
    let unlocked = world.output(&["unlock", "--ticket-file", &file]);
    assert_eq!(code(&unlocked), 0, "{unlocked:?}");
    assert!(world.is_free("x"));
}

#[test]
fn a_stale_ticket_leaves_the_next_holder_alone() {
    let world = World::new();
    let ticket = world.ticket(&["--ttl", "1s"], "x");
    // It waits until the first has run out.
    let _holder = world.holder(&[], "x");
    let token = world.token("x");
    for words in [&["keep"][..], &["unlock"], &["run", "--ticket"]] {
        let command: &[&str] = if words[0] == "run" { &["--", "echo", "ran"] } else { &[] };
        let output = world.output(&[words, &[&ticket], command].concat());
        assert_eq!(code(&output), 79, "{output:?}");
        assert_eq!(stdout(&output), "");
        let said = stderr(&output);
        assert!(said.contains("the lock \"x\" was lost") && said.contains("--store"), "{said}");
    }
    let unlocked = world.output(&["unlock", "--json", &ticket]);
    assert_eq!(
        (code(&unlocked), stdout(&unlocked).trim()),
        (79, r#"[{"name":"x","unlocked":false}]"#)
    );
    assert_eq!(world.token("x"), token);
}

#[test]
fn a_ticket_that_was_changed_is_refused_and_not_repeated() {
    let world = World::new();
    let ticket = world.ticket(&["--ttl", "60s"], "x");
    let longer = ticket.replace(":60000:", ":90000:");
    let other = format!("{}y", &ticket[..ticket.len() - 1]);
    for wrong in [&longer, &other, &ticket[..30], "x", ""] {
        for words in
            [&["keep", wrong][..], &["unlock", wrong], &["run", "--ticket", wrong, "--", "true"]]
        {
            let output = world.output(words);
            assert_eq!(code(&output), 64, "{output:?}");
            assert!(stderr(&output).contains("not a ticket"), "{output:?}");
            assert!(!stderr(&output).contains("lk1:x:"), "{output:?}");
        }
    }
    assert_eq!(world.code(&["unlock", &ticket]), 0);
}

#[test]
fn a_ticket_of_another_store_does_nothing() {
    let world = World::new();
    let other = format!("sqlite:{}", world.file("other.db"));
    let ticket = world.ticket(&["--ttl", "60s", "--store", &other], "x");
    let _same_name = world.holder(&[], "x");
    let token = world.token("x");
    for words in [&["keep", &ticket][..], &["unlock", &ticket]] {
        let output = world.output(words);
        assert_eq!(code(&output), 79, "{output:?}");
        assert!(stderr(&output).contains("--store"), "{output:?}");
    }
    assert_eq!(world.token("x"), token);
    assert_eq!(world.code(&["unlock", &ticket, "--store", &other]), 0);
    let output = world.output(&["lock", "--ttl", "60s", "--store", "memory:", "x"]);
    assert_eq!(code(&output), 64);
    assert!(stderr(&output).contains("excludes no other command"), "{output:?}");
}

#[test]
fn of_twenty_that_unlock_at_once_one_does_and_the_next_holder_is_left_alone() {
    let world = World::new();
    let ticket = world.ticket(&["--ttl", "60s"], "x");
    let script =
        format!("touch {0}.in; while ! test -e {0}.end; do sleep 0.02; done", world.file("n"));
    let next = world.start(&["run", "x", "--", "sh", "-c", &script]);
    eventually("one waits", || world.waiters("x") == 1);
    let crowd: Vec<Running> = (0..20).map(|_| world.start(&["unlock", &ticket])).collect();
    let mut codes: Vec<_> = crowd.into_iter().map(|one| code(&one.finish())).collect();
    codes.sort_unstable();
    assert_eq!(codes[0], 0, "{codes:?}");
    assert!(codes[1..].iter().all(|code| *code == 79), "{codes:?}");
    eventually("the next one holds it", || world.path("n.in").exists());
    assert_eq!(world.code(&["unlock", &ticket]), 79);
    std::fs::write(world.path("n.end"), "").unwrap();
    assert_eq!(code(&next.finish()), 0);
}

#[test]
fn a_lock_that_is_not_free_is_not_locked() {
    let world = World::new();
    let ticket = world.ticket(&["--ttl", "60s", "--on-behalf-of", "pipeline 7"], "x");
    assert_eq!(world.show("x")["holders"][0]["identity"], "pipeline 7");
    for (options, wanted) in [
        (&["-n"][..], 75),
        (&["-w", "200ms"], 75),
        (&["-n", "-E", "3"], 3),
        (&["-n", "--shared"], 75),
    ] {
        let output = world.output(&[&["lock", "--ttl", "60s"], options, &["x"]].concat());
        assert_eq!((code(&output), stdout(&output)), (wanted, String::new()), "{output:?}");
        assert!(stderr(&output).contains("pipeline 7"), "{output:?}");
    }
    assert_eq!(world.code(&["lock", "-n", "--ttl", "60s", "w", "x"]), 75, "all or none");
    assert!(world.is_free("w"));
    let mut waiter = world.start(&["lock", "--ttl", "60s", "x"]);
    eventually("one waits", || world.waiters("x") == 1);
    waiter.signal(Signal::SIGTERM);
    let output = waiter.finish();
    assert_eq!((code(&output), stdout(&output)), (143, String::new()), "{output:?}");
    assert_eq!(world.waiters("x"), 0);
    let waiter = world.start(&["lock", "--ttl", "60s", "x"]);
    eventually("one waits", || world.waiters("x") == 1);
    assert_eq!(world.code(&["unlock", &ticket]), 0);
    let output = waiter.finish();
    assert_eq!(world.code(&["unlock", stdout(&output).trim()]), 0, "{output:?}");
}

#[test]
fn modes_are_those_of_run() {
    let world = World::new();
    for (options, mode) in [(&["--slots", "2"][..], "p2"), (&["--shared"], "s")] {
        let options = [options, &["--ttl", "60s"]].concat();
        let tickets = [world.ticket(&options, mode), world.ticket(&options, mode)];
        assert!(tickets[0].starts_with(&format!("lk1:{mode}:")) && tickets[0] != tickets[1]);
        assert!(!world.is_free(mode));
        assert_eq!(world.code(&["unlock", &tickets[0], &tickets[1]]), 0);
        assert!(world.is_free(mode));
    }
    let output = world.output(&["lock", "--json", "--slots", "2", "--ttl", "60s", "x"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["mode"], "permit");
    assert_eq!((&json[0]["permits"], &json[0]["ttl_ms"]), (&2.into(), &60_000.into()));
    assert_eq!(json[0]["token"], world.show("x")["holders"][0]["token"]);
    assert_eq!(world.code(&["unlock", json[0]["ticket"].as_str().unwrap()]), 0);
}

#[test]
fn several_names_have_a_ticket_each() {
    let world = World::new();
    let output = world.output(&["lock", "--ttl", "60s", "z,x", "y"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let text = stdout(&output);
    let tickets: Vec<_> = text.lines().collect();
    let names: Vec<_> = tickets.iter().map(|ticket| ticket.rsplit(':').next().unwrap()).collect();
    assert_eq!(names, ["x", "y", "z"]);
    assert_eq!(world.code(&["unlock", tickets[1]]), 0);
    // The others are tried all the same.
    let kept = world.output_with_input(&["keep", "-"], &text);
    assert_eq!(code(&kept), 79, "{kept:?}");
    let told = stdout(&kept);
    let told: Vec<_> = told.lines().map(|line| line.split_once(" valid for ").unwrap().0).collect();
    assert_eq!(told, ["\"x\" is", "\"z\" is"]);
    let unlocked = world.output_with_input(&["unlock", "--json", "--ticket-file", "-"], &text);
    assert_eq!(code(&unlocked), 79, "{unlocked:?}");
    let json: Value = serde_json::from_slice(&unlocked.stdout).unwrap();
    let done: Vec<_> = json.as_array().unwrap().iter().map(|one| one["unlocked"] == true).collect();
    assert_eq!(done, [true, false, true]);
    assert!(world.is_free("x") && world.is_free("z"));
}

#[test]
fn a_ticket_that_nobody_gets_leaves_no_lock() {
    let world = World::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = world.command(&["lock", "--ttl", "60s", "x"]).stdout(full).output().unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
    assert!(world.is_free("x"));
    let mut command = world.command(&["lock", "--ttl", "60s", "x"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
    assert!(stderr(&output).contains("given back"), "{output:?}");
    assert!(world.is_free("x"));
}
