//! A command under a lock, when all is well.

use crate::support::{World, code, eventually, lockkeeper, stderr, stdout};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn the_exit_code_is_the_commands() {
    let world = World::new();
    for wanted in [0, 1, 7, 75, 255] {
        let output = world.output(&["run", "x", "sh", "-c", &format!("exit {wanted}")]);
        assert_eq!(code(&output), wanted);
        assert_eq!(stderr(&output), "", "no word of our own");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_command_killed_by_a_signal_gives_128_and_its_number() {
    let world = World::new();
    for (signal, wanted) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("40", 168)] {
        assert_eq!(world.code(&["run", "x", "sh", "-c", &format!("kill -{signal} $$")]), wanted);
    }
}

#[test]
fn a_command_that_is_not_there_gives_127_and_one_that_is_no_program_126() {
    let world = World::new();
    let missing = world.output(&["run", "x", "no-such-command"]);
    assert_eq!(code(&missing), 127);
    assert!(stderr(&missing).contains("\"no-such-command\": not found"), "{missing:?}");
    let file = world.file("plain");
    std::fs::write(&file, "text").unwrap();
    let plain = world.output(&["run", "x", &file]);
    assert_eq!(code(&plain), 126);
    assert!(stderr(&plain).contains("Permission denied"), "{plain:?}");
    assert_eq!(world.code(&["show", "x"]), 1, "and the lock is released");
}

#[test]
fn stdin_goes_to_the_command_and_arguments_are_not_touched() {
    let world = World::new();
    let mut command =
        world.command(&["run", "x", "--", "sh", "-c", "cat; echo \"$0|$1|$2\"", "a b", "--", "-n"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "hello\na b|--|-n\n");
}

#[test]
fn the_command_is_told_what_it_holds_and_nothing_of_how() {
    let world = World::new();
    let vars = "echo $LOCKKEEPER_NAME $LOCKKEEPER_MODE; echo $LOCKKEEPER_TOKEN $LOCKKEEPER_OWNER; \
                tr '\\0' ' ' < /proc/$$/cmdline";
    for (options, mode) in
        [(&[][..], "exclusive"), (&["--shared"], "shared"), (&["--slots", "2"], "permit")]
    {
        let words = [&["run"], options, &["jobs/1", "sh", "-c", vars]].concat();
        let output = stdout(&world.output(&words));
        let mut lines = output.lines();
        assert_eq!(lines.next(), Some(&*format!("jobs/1 {mode}")));
        let (token, owner) = lines.next().unwrap().split_once(' ').unwrap();
        assert!(token.parse::<u64>().unwrap() > 0);
        assert!(owner.starts_with("run-"), "{owner}");
        assert!(lines.next().unwrap().starts_with("sh -c "), "{output}");
    }
}

#[test]
fn tokens_grow() {
    let world = World::new();
    let token = || {
        let output = world.output(&["run", "x", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]);
        stdout(&output).trim().parse::<u64>().unwrap()
    };
    let tokens = [token(), token(), token()];
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn the_command_inherits_no_open_file_of_ours() {
    let world = World::new();
    let list = ["ls", "/proc/self/fd"];
    // The program that started the tests may have left some open.
    let plain = Command::new(list[0]).arg(list[1]).stdin(Stdio::null()).output().unwrap();
    let under_lock = world.output(&[&["run", "x"][..], &list].concat());
    assert!(stdout(&plain).starts_with("0\n1\n"), "{plain:?}");
    assert_eq!(stdout(&under_lock), stdout(&plain));
}

#[test]
fn the_command_inherits_the_signals_as_they_were() {
    let world = World::new();
    let ask = ["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"];
    let plain = Command::new(ask[0]).args(&ask[1..]).output().unwrap();
    let under_lock = world.output(&[&["run", "x", "--"][..], &ask].concat());
    assert_eq!(stdout(&plain).lines().count(), 2, "{plain:?}");
    assert_eq!(stdout(&under_lock), stdout(&plain));
}

#[test]
fn several_names_are_held_together_and_in_order() {
    let world = World::new();
    let script = "echo $LOCKKEEPER_NAME $LOCKKEEPER_TOKEN; \
                  for name in a b; do env -u LOCKKEEPER_OWNER \"$0\" run -n $name true; echo $?; done; \
                  env -u LOCKKEEPER_OWNER \"$0\" run -n c true; echo $?";
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let output = world.output(&["run", "b,a", "--", "sh", "-c", script, program]);
    let lines: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    let (names, tokens) = lines[0].split_once(' ').unwrap();
    assert_eq!(names, "a,b");
    let tokens: Vec<u64> = tokens.split(',').map(|token| token.parse().unwrap()).collect();
    assert_eq!(tokens.len(), 2);
    assert_eq!(lines[1..], ["75", "75", "0"]);
}

#[test]
fn a_run_within_a_run_enters_again_and_does_not_free_the_lock() {
    let world = World::new();
    let script = "outer=$LOCKKEEPER_TOKEN; \"$0\" run -w 30s x -- sh -c 'echo $LOCKKEEPER_TOKEN'; \
                  echo $outer; env -u LOCKKEEPER_OWNER \"$0\" run -n x true; echo $?";
    let output =
        world.output(&["run", "x", "--", "sh", "-c", script, env!("CARGO_BIN_EXE_lockkeeper")]);
    let lines: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{output:?}");
    assert_eq!(lines[0], lines[1], "one token for both");
    assert_eq!(lines[2], "75", "still held after the inner one ended");
    assert_eq!(world.code(&["show", "x"]), 1, "free after both");
}

#[test]
fn a_run_within_a_run_uses_the_same_store_wherever_it_is_called() {
    let world = World::new();
    let script = "cd / && \"$0\" run x -- sh -c 'echo $LOCKKEEPER_TOKEN'; echo $LOCKKEEPER_TOKEN";
    let mut command =
        lockkeeper(&["run", "--store", "sqlite:here.db", "x", "--", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_lockkeeper")).current_dir(world.path(""));
    let output = command.output().unwrap();
    let lines: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert_eq!(lines[0], lines[1], "one token for both");
}

#[test]
fn only_one_of_many_processes_is_in_at_a_time() {
    let world = World::new();
    // Each adds one to a number in a file, reading and writing far enough apart to lose counts
    // without the lock.
    let script = format!(
        "read n < {file}; sleep 0.02; echo $((n + 1)) > {file}",
        file = world.file("number")
    );
    std::fs::write(world.path("number"), "0\n").unwrap();
    let mut all: Vec<_> =
        (0..12).map(|_| world.start(&["run", "x", "--", "sh", "-c", &script])).collect();
    for running in &mut all {
        assert_eq!(running.wait().code(), Some(0));
    }
    assert_eq!(world.read("number"), "12\n");
}

#[test]
fn readers_share_and_slots_are_counted() {
    let world = World::new();
    let _reader = world.holder(&["--shared"], "x");
    assert_eq!(world.code(&["run", "-n", "--shared", "x", "true"]), 0);
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 75);
    let _first = world.holder(&["--slots", "2"], "y");
    assert_eq!(world.code(&["run", "-n", "--slots", "2", "y", "true"]), 0);
    let _second = world.holder(&["--slots", "2"], "y");
    assert_eq!(world.code(&["run", "-n", "--slots", "2", "y", "true"]), 75);
}

#[test]
fn min_hold_is_not_for_a_command_that_never_ran() {
    let world = World::new();
    let file = world.file("plain");
    std::fs::write(&file, "text").unwrap();
    for (command, wanted) in [("/no/such/command", 127), (&*file, 126)] {
        assert_eq!(world.code(&["run", "--min-hold", "1h", "x", command]), wanted);
        assert_eq!(world.code(&["show", "x"]), 1, "it is free after {command}");
        assert_eq!(world.code(&["run", "--min-hold", "1h", "x,y", command]), wanted);
        let list = stdout(&world.output(&["ls", "--json"]));
        assert_eq!(list, "[]\n", "they are free after {command}");
    }
    // One that did run and says the same is another thing.
    assert_eq!(world.code(&["run", "--min-hold", "1h", "x", "sh", "-c", "exit 127"]), 127);
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 75);
    // And so is one that was ended by a signal.
    assert_eq!(world.code(&["run", "--min-hold", "1h", "y", "sh", "-c", "kill -9 $$"]), 137);
    assert_eq!(world.code(&["run", "-n", "y", "true"]), 75);
}

#[test]
fn min_hold_is_not_for_one_of_several_names_when_another_is_taken() {
    let world = World::new();
    let _holder = world.holder(&[], "b");
    assert_eq!(world.code(&["run", "-n", "--min-hold", "1h", "a,b", "true"]), 75);
    assert_eq!(world.code(&["run", "-w", "100ms", "--min-hold", "1h", "a,b", "true"]), 75);
    assert_eq!(world.code(&["run", "-n", "a", "true"]), 0);
}

#[test]
fn setsid_is_warned_of() {
    let world = World::new();
    let output = world.output(&["run", "x", "setsid", "true"]);
    assert_eq!(code(&output), 0);
    assert!(stderr(&output).contains("leave setsid out"), "{output:?}");
}

#[test]
fn min_hold_keeps_the_lock_after_the_command() {
    let world = World::new();
    assert_eq!(world.code(&["run", "--min-hold", "1h", "x", "true"]), 0);
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 75);
    assert_eq!(world.code(&["run", "--min-hold", "1ms", "y", "true"]), 0);
    eventually("the rest of a short one is over", || world.code(&["run", "-n", "y", "true"]) == 0);
}
