//! What can stand before or behind every verb.

use crate::support::{World, code, eventually, lockkeeper, stderr, stdout};
use serde_json::Value;

#[test]
fn the_store_can_be_named_before_the_verb() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let store = world.store();
    for words in [
        &["--store", &store, "run", "-n", "x", "true"][..],
        &["run", "--store", &store, "-n", "x", "true"],
        &["--quiet", "--store", &store, "run", "-n", "x", "true"],
    ] {
        let output = lockkeeper(words).output().unwrap();
        assert_eq!(code(&output), 75, "{words:?}: {output:?}");
    }
    let list = lockkeeper(&["--store", &store, "ls", "--json"]).output().unwrap();
    assert!(stdout(&list).contains("\"x\""), "{list:?}");
    // The one that is nearer to the command counts.
    let other = format!("sqlite:{}", world.file("other.db"));
    let words = ["--store", &store, "run", "--store", &other, "-n", "x", "true"];
    assert_eq!(code(&lockkeeper(&words).output().unwrap()), 0);
    let words = ["--store", &store, "id", "sequence", "--key", "k"];
    assert_eq!(stdout(&lockkeeper(&words).output().unwrap()), "1\n");
}

#[test]
fn the_options_of_the_command_are_not_ours() {
    let world = World::new();
    let output = world.output(&["run", "x", "echo", "-q", "--store", "-v", "--color"]);
    assert_eq!(stdout(&output), "-q --store -v --color\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn quiet_says_nothing_of_waiting_but_what_went_wrong() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    for words in [["-q", "run"], ["run", "-q"]] {
        let output = world.output(&[&words[..], &["-w", "1.5s", "x", "true"]].concat());
        assert_eq!(code(&output), 75);
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!said.contains("waiting for") && said.contains("sleep 600"), "{said}");
    }
    let output = world.output(&["run", "-w", "1.5s", "x", "true"]);
    assert!(stderr(&output).contains("waiting for"), "{output:?}");
    let lost = world.output(&["run", "-q", "--max-hold", "300ms", "y", "sleep", "600"]);
    assert_eq!(code(&lost), 79);
    assert!(stderr(&lost).contains("was lost"), "{lost:?}");
}

#[test]
fn verbose_says_how_long_it_took() {
    let world = World::new();
    let output = world.output(&["run", "-v", "x", "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]);
    let said = stderr(&output);
    let [acquired, released] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    let token = stdout(&output);
    assert!(acquired.starts_with("lockkeeper: acquired \"x\" after "), "{said}");
    assert!(acquired.ends_with(&format!("s, token {}", token.trim())), "{said}");
    assert!(released.starts_with("lockkeeper: released \"x\" after "), "{said}");
    let output = world.output(&["lock", "-v", "--ttl", "30s", "a", "b"]);
    assert!(stderr(&output).contains("acquired \"a\", \"b\" after "), "{output:?}");
    assert!(stderr(&output).contains(", tokens "), "{output:?}");
    let ticket = stdout(&output).lines().next().unwrap().to_owned();
    let output = world.output(&["run", "-v", "--ticket", &ticket, "--", "true"]);
    assert!(stderr(&output).contains("took over \"a\" after "), "{output:?}");
}

#[test]
fn messages_can_be_json() {
    let world = World::new();
    let mut holder = world.holder(&[], "x");
    let words = ["--log-format", "json", "run", "-w", "1.5s", "x", "true"];
    let output = world.output(&words);
    assert_eq!(code(&output), 75);
    let said = stderr(&output);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 2, "{said}");
    for (line, level, text) in
        [(&lines[0], "INFO", "waiting for \"x\""), (&lines[lines.len() - 1], "ERROR", "sleep 600")]
    {
        assert_eq!(line["level"], level, "{said}");
        assert!(line["message"].as_str().unwrap().contains(text), "{said}");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{said}");
    }
    holder.child().kill().unwrap();
}

#[test]
fn the_log_is_chosen_by_its_variable() {
    let world = World::new();
    let run = |filter: &str, words: &[&str]| {
        let mut command = world.command(words);
        let output = command.env("RUST_LOG", filter).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        stderr(&output)
    };
    let words = ["run", "x", "true"];
    let said = run("debug", &words);
    assert!(said.contains("DEBUG") && said.contains("lockkeeper::event"), "{said}");
    assert!(said.lines().all(|line| line.contains(" lockkeeper::")), "only ours: {said}");
    assert_eq!(run("", &words), "");
    assert_eq!(run("error", &words), "");
    let said = run("x=y=z", &words);
    assert!(said.contains("RUST_LOG is not understood"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = run("lockkeeper=debug", &["--log-format", "json", "run", "x", "true"]);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines.iter().any(|line| line["message"] == "acquired" && line["name"] == "x"),
        "{said}"
    );
}

#[test]
fn a_wait_says_how_long_it_has_been_and_how_much_is_left() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let output = world.output(&["run", "-w", "2.5s", "x", "true"]);
    let said = stderr(&output);
    let waiting = said.lines().find(|line| line.contains("waiting for")).unwrap();
    assert!(waiting.contains("; waited 1s, 1s left; place 1 in the queue"), "{said}");
}

#[test]
fn disagreeing_numbers_of_slots_are_named() {
    let world = World::new();
    let _holder = world.holder(&["--slots", "1"], "x");
    for options in [&["-n"][..], &["-w", "100ms"], &["-w", "1.2s"]] {
        let output = world.output(&[&["run"], options, &["--slots", "3", "x", "true"]].concat());
        assert_eq!(code(&output), 75);
        let said = stderr(&output);
        assert!(said.contains("one of 1 permits and --slots says 3"), "{options:?}: {said}");
    }
    let output = world.output(&["run", "-n", "--slots", "1", "x", "true"]);
    assert!(!stderr(&output).contains("permits"), "{output:?}");
}

#[test]
fn a_name_can_have_commas() {
    let world = World::new();
    let script = "echo \"$LOCKKEEPER_NAME\"; exec \"$0\" ls --json";
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let output = world.output(&["run", r"a\,b,c", "--", "sh", "-c", script, program]);
    let printed = stdout(&output);
    let (name, list) = printed.split_once('\n').unwrap();
    assert_eq!(name, r"a\,b,c");
    let list: Value = serde_json::from_str(list).unwrap();
    assert_eq!((&list[0]["name"], &list[1]["name"]), (&"a,b".into(), &"c".into()));
    let output = world.output(&["lock", "--ttl", "30s", r"d\,e"]);
    assert_eq!(code(&output), 0);
    eventually("it is held", || world.show("d,e")["holders"].as_array().unwrap().len() == 1);
}

#[test]
fn a_full_width_comma_is_warned_of() {
    let world = World::new();
    let output = world.output(&["run", "库存，订单", "true"]);
    assert_eq!(code(&output), 0);
    assert!(stderr(&output).contains("full-width comma"), "{output:?}");
    assert_eq!(stderr(&world.output(&["run", "-q", "库存，订单", "true"])), "");
}

#[test]
fn what_others_see_of_the_command_can_be_chosen() {
    let world = World::new();
    for (options, note) in [
        (&["--note", "nightly 备份"][..], "nightly 备份"),
        (&["--no-command"], ""),
        (&["--note", ""], ""),
    ] {
        let mut holder = world.holder(options, "x");
        assert_eq!(world.show("x")["holders"][0]["note"], note, "{options:?}");
        holder.signal(nix::sys::signal::Signal::SIGTERM);
        holder.wait();
    }
}
