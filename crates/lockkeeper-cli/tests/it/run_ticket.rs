//! `run --ticket`: the lock is another's, the command is ours.

use crate::support::{World, code, eventually, is_alive, stderr, stdout};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lockkeeper");

/// Puts the tickets of `names` into a file.
fn locked(world: &World, ttl: &str, names: &[&str]) -> String {
    let output = world.output(&[&["lock", "-n", "--ttl", ttl], names].concat());
    assert_eq!(code(&output), 0, "{output:?}");
    std::fs::write(world.path("ticket"), &output.stdout).unwrap();
    world.file("ticket")
}

#[test]
fn the_command_has_the_lock_and_gives_it_back() {
    let world = World::new();
    let script = "echo $LOCKKEEPER_NAME $LOCKKEEPER_TOKEN $LOCKKEEPER_MODE; exit 7";
    let words = ["--", "sh", "-c", script];
    for form in ["argument", "file", "input"] {
        let file = locked(&world, "60s", &["x"]);
        let ticket = world.read("ticket");
        let token = world.token("x");
        let output = match form {
            "argument" => world.output(&[&["run", "--ticket", ticket.trim()], &words[..]].concat()),
            "file" => world.output(&[&["run", "--ticket-file", &file], &words[..]].concat()),
            _ => world
                .output_with_input(&[&["run", "--ticket-file", "-"], &words[..]].concat(), &ticket),
        };
        assert_eq!(code(&output), 7, "{form}: {output:?}");
        assert_eq!(stdout(&output), format!("x {token} exclusive\n"), "{form}");
        assert_eq!(stderr(&output), "", "{form}");
        assert_eq!(world.code(&["run", "-n", "x", "true"]), 0, "{form}");
        assert_eq!(world.code(&["unlock", ticket.trim()]), 79, "{form}");
    }
    let file = locked(&world, "60s", &["x"]);
    assert_eq!(world.code(&["run", "--ticket-file", &file, "--", "/no/such/command"]), 127);
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 0);
}

#[test]
fn it_is_renewed_for_as_long_as_the_command_runs() {
    let world = World::new();
    let file = locked(&world, "2s", &["x"]);
    let script = format!("sleep 4.5; \"$0\" run -n x true; exec {PROGRAM} show --json x");
    let mut command =
        world.command(&["run", "--ticket-file", &file, "--", "sh", "-c", &script, PROGRAM]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    // Held by the same grant all the time, and for a run within it.
    let token = world.read("ticket").split(':').nth(4).unwrap().to_owned();
    assert!(stdout(&output).contains(&format!("\"token\":{token}")), "{output:?}");
    assert!(!stderr(&output).contains("not free"), "{output:?}");
}

#[test]
fn a_run_within_enters_again() {
    let world = World::new();
    let file = locked(&world, "60s", &["x", "y"]);
    let words =
        ["run", "--ticket-file", &file, "--", PROGRAM, "run", "-n", "y", "--", "echo", "in"];
    let output = world.output(&words);
    assert_eq!((code(&output), stdout(&output).trim()), (0, "in"), "{output:?}");
}

#[test]
fn a_lock_that_is_broken_ends_the_command() {
    let world = World::new();
    let file = locked(&world, "60s", &["w", "x"]);
    let script = "trap 'exit 0' TERM; echo $$ > $0.new; mv $0.new $0; \
                  i=0; while test $i -lt 4000; do sleep 0.05; i=$((i + 1)); done";
    let pid = world.file("pid");
    let words = ["run", "--ttl", "3s", "--ticket-file", &file, "--", "sh", "-c", script, &pid];
    let held = world.start(&words);
    eventually("the command runs", || world.path("pid").exists());
    let token = world.token("x");
    assert_eq!(world.code(&["break", "x", "--token", &token, "--reason", "stuck"]), 0);
    let output = held.finish();
    assert_eq!(code(&output), 79, "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("the lock \"x\" was lost: it was broken: stuck"), "{said}");
    assert!(!is_alive(world.pid()));
    assert_eq!(world.code(&["run", "-n", "w,x", "true"]), 0, "and the other is given back");
}

#[test]
fn where_one_ticket_is_stale_the_others_stay_good() {
    let world = World::new();
    let file = locked(&world, "60s", &["x", "y"]);
    let tickets = world.read("ticket");
    let tickets: Vec<_> = tickets.lines().collect();
    assert_eq!(world.code(&["unlock", tickets[1]]), 0);
    let output = world.output(&["run", "--ticket-file", &file, "--", "echo", "ran"]);
    assert_eq!((code(&output), stdout(&output)), (79, String::new()), "{output:?}");
    assert!(stderr(&output).contains("the command was not started: the lock \"y\""), "{output:?}");
    assert_eq!(world.code(&["unlock", tickets[0]]), 0);
}

#[test]
fn wrong_usage_is_64() {
    let world = World::new();
    let file = locked(&world, "60s", &["x"]);
    std::fs::write(world.path("empty"), "\n").unwrap();
    let empty = world.file("empty");
    for (words, hint) in [
        (&["run", "--ticket-file", &file, "true"][..], "-- CMD"),
        (&["run", "--ticket-file", &file, "--"], "-- CMD"),
        (&["run", "--ticket-file", &file, "x", "--", "true"], "-- CMD"),
        (&["run", "--ticket-file", &file, "-n", "--", "true"], "cannot be used with"),
        (&["run", "--ticket-file", &file, "--min-hold", "1s", "--", "true"], "cannot be used with"),
        (&["run", "--ticket-file", &file, "--ttl", "1ms", "--", "true"], "ttl"),
        (&["run", "--ticket-file", &empty, "--", "true"], "there is no ticket in"),
        (&["unlock", "--ticket-file", &empty], "there is no ticket in"),
        (&["unlock", "--ticket-file", "/no/such/file"], "/no/such/file"),
        (&["unlock", "-"], "standard input"),
        (&["unlock"], "TICKET"),
        (&["keep", "--ticket-file", &file, "--for", "48h"], "24 hours"),
        (&["lock", "y"], "--ttl"),
        (&["lock", "--ttl", "48h", "y"], "24 hours"),
        (&["lock", "--ttl", "1m"], "NAME"),
        (&["lock", "--ttl", "1m", "--shared", "y", "z"], "several names"),
        (&["lock", "--ttl", "1m", "--on-behalf-of", "", "y"], "on_behalf_of"),
    ] {
        let output = world.output(words);
        assert_eq!(code(&output), 64, "{words:?}: {output:?}");
        assert!(stderr(&output).contains(hint), "{words:?}: {}", stderr(&output));
    }
    assert_eq!(world.code(&["unlock", "--ticket-file", &file]), 0, "and nothing was done");
}
