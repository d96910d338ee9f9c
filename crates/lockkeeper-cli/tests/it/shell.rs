//! `run` as those type it who know flock.

use crate::support::{World, code, stderr, stdout};

#[test]
fn a_line_is_run_by_the_shell() {
    let world = World::new();
    for words in [
        &["run", "x", "-c", "echo a | tr a b"][..],
        &["run", "-c", "echo a | tr a b", "x"],
        &["run", "-x", "--nb", "x", "-c", "echo a | tr a b"],
    ] {
        let output = world.output(words);
        assert_eq!(
            (code(&output), stdout(&output)),
            (0, "b\n".to_owned()),
            "{words:?}: {output:?}"
        );
    }
    assert_eq!(world.code(&["run", "x", "-c", "exit 7"]), 7);
    // The command's own.
    let output = world.output(&["run", "x", "sh", "-c", "printf '%s\\n' \"$0\"", "-n"]);
    assert_eq!(stdout(&output), "-n\n");
    let ticket = stdout(&world.output(&["lock", "--ttl", "30s", "y"]));
    let output = world.output(&["run", "--ticket", ticket.trim(), "-c", "echo $LOCKKEEPER_NAME"]);
    assert_eq!((code(&output), stdout(&output)), (0, "y\n".to_owned()), "{output:?}");
}

#[test]
fn the_spellings_of_flock_work() {
    let world = World::new();
    let _holder = world.holder(&["--exclusive"], "x");
    for options in [&["--nb"][..], &["--nonblock"], &["-e", "-n"], &["--timeout", "50ms"]] {
        let output = world.output(&[&["run"], options, &["x", "true"]].concat());
        assert_eq!(code(&output), 75, "{options:?}: {output:?}");
    }
}

#[test]
fn a_whole_line_in_place_of_a_program_gets_a_hint() {
    let world = World::new();
    for (command, hinted) in
        [("echo a | cat", true), ("no such", true), ("$HOME/x", true), ("no-such", false)]
    {
        let output = world.output(&["run", "x", command]);
        assert_eq!(code(&output), 127, "{output:?}");
        assert_eq!(stderr(&output).contains("use -c"), hinted, "{output:?}");
    }
}
