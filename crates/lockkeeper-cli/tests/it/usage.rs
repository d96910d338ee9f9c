//! What is asked for wrongly is refused with 64 and a helpful word.

use crate::support::{World, code, lockkeeper, stderr, stdout};

#[test]
fn wrong_usage_is_64() {
    let world = World::new();
    let long = "n".repeat(300);
    for (words, hint) in [
        (&["run"][..], "Usage"),
        (&["run", "x"], "CMD"),
        (&["run", "-w", "30", "x", "true"], "30s"),
        (&["run", "-w", "-5s", "x", "true"], "duration"),
        (&["run", "--ttl", "", "x", "true"], "duration"),
        (&["run", "--ttl", "1ms", "x", "true"], "ttl"),
        (&["run", "--max-hold", "1s", "--min-hold", "2s", "x", "true"], "min_hold"),
        (&["run", "-E", "256", "x", "true"], "255"),
        (&["run", "-n", "-w", "1s", "x", "true"], "cannot be used with"),
        (&["run", "--shared", "--slots", "2", "x", "true"], "cannot be used with"),
        (&["run", "--shared", "x,y", "true"], "several names"),
        (&["run", "--slots", "2", "x,y", "true"], "several names"),
        (&["run", "--slots", "0", "x", "true"], "1.."),
        (&["run", "--on-lost", "cry", "x", "true"], "warn"),
        (&["run", "--frobnicate", "x", "true"], "--frobnicate"),
        (&["run", "--store", "memory:", "x", "true"], "sqlite:"),
        (&["run", "--store", "", "x", "true"], "URL"),
        (&["run", "", "true"], "empty"),
        (&["run", "a,,b", "true"], "empty"),
        (&["run", "a\nb", "true"], "control character"),
        (&["run", &long, "true"], "300"),
        (&["show", &long], "300"),
        (&["show", ""], "empty"),
        (&["break", "x", "--token", "0", "--reason", "r"], "zero"),
        (&["break", "x", "--token", "-3", "--reason", "r"], "-3"),
        (&["break", "x", "--token", "abc", "--reason", "r"], "abc"),
        (&["break", "x", "--token", "5", "--reason", ""], "reason"),
        (&["break", "x", "--token", "5"], "--reason"),
        (&["frobnicate"], "frobnicate"),
        (&["list"], "`lockkeeper ls`"),
        (&["ps"], "`lockkeeper ls`"),
        (&["status"], "`lockkeeper show NAME`"),
        (&["unlock", "x"], "`lockkeeper break NAME`"),
        (&["ls", "-q", "-v"], "cannot be used with"),
        (&["break", "x"], "--token"),
        (&["run", "-x", "--shared", "x", "true"], "cannot be used with"),
        (&["run", "x", "-c", "echo", "a"], "quotes"),
        (&["run", "--no-command", "--note", "n", "x", "true"], "cannot be used with"),
        (&["run", "--store", "prod", "x", "true"], "no configuration file"),
        (&["completions", "cobol"], "cobol"),
        (&["man", "frobnicate"], "recipes"),
    ] {
        let output = world.output(words);
        assert_eq!(code(&output), 64, "{words:?}: {output:?}");
        assert!(stderr(&output).contains(hint), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn an_unknown_store_lists_the_known_ones_and_hides_the_password() {
    let output = lockkeeper(&["ls", "--store", "mongodb://me:hunter2@localhost"]).output().unwrap();
    assert_eq!(code(&output), 64);
    assert!(
        stderr(&output).contains("sqlite:") && stderr(&output).contains("memory:"),
        "{output:?}"
    );
    assert!(!stderr(&output).contains("hunter2"), "{output:?}");
}

#[test]
fn help_does_not_print_the_password_in_the_environment() {
    for words in [&["run", "--help"][..], &["ls", "--help"], &["run", "-h"], &["man", "run"]] {
        let mut command = lockkeeper(words);
        let output = command.env("LOCKKEEPER_STORE", "redis://:hunter2@host").output().unwrap();
        assert_eq!(code(&output), 0);
        assert!(!stdout(&output).contains("hunter2"), "{output:?}");
    }
}

#[test]
fn an_owner_that_makes_no_sense_is_refused() {
    let world = World::new();
    for owner in ["", "a\nb"] {
        let mut command = world.command(&["run", "x", "true"]);
        let output = command.env("LOCKKEEPER_OWNER", owner).output().unwrap();
        assert_eq!(code(&output), 64, "{owner:?}");
        assert!(stderr(&output).contains("LOCKKEEPER_OWNER"), "{output:?}");
    }
}

#[test]
fn asking_for_more_of_a_lock_than_the_run_around_has_is_refused() {
    let world = World::new();
    let script = "\"$0\" run -w 20s x true";
    let words =
        ["run", "--shared", "x", "--", "sh", "-c", script, env!("CARGO_BIN_EXE_lockkeeper")];
    let output = world.output(&words);
    assert_eq!(code(&output), 64, "{output:?}");
    assert!(stderr(&output).contains("shared"), "{output:?}");
}

#[test]
fn the_option_counts_more_than_the_variable() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let other = format!("sqlite:{}", world.file("other.db"));
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 75);
    assert_eq!(world.code(&["run", "-n", "--store", &other, "x", "true"]), 0);
}

#[test]
fn the_hidden_verb_does_nothing_for_others() {
    for words in
        [&["--become"][..], &["--become", "1", "without-terminal", "true"], &["--become", "x"]]
    {
        assert_eq!(code(&lockkeeper(words).output().unwrap()), 64, "{words:?}");
    }
}
