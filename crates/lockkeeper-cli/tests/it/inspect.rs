//! `ls`, `show` and `break`.

use crate::support::{World, code, eventually, stderr, stdout};
use serde_json::Value;

#[test]
fn nothing_held_is_a_friendly_line_and_for_show_1() {
    let world = World::new();
    for (words, wanted) in [(&["ls"][..], 0), (&["ls", "jobs/"], 0), (&["show", "x"], 1)] {
        let output = world.output(words);
        assert_eq!(code(&output), wanted, "{words:?}");
        assert_eq!(stdout(&output), "");
        assert!(stderr(&output).starts_with("lockkeeper: "), "{output:?}");
    }
    let list = world.output(&["ls", "--json"]);
    assert_eq!((code(&list), stdout(&list)), (0, "[]\n".to_owned()));
}

#[test]
fn the_list_has_aligned_columns_and_knows_prefixes() {
    let world = World::new();
    let _holder = world.holder(&[], "jobs/1");
    let list = world.output(&["ls"]);
    assert_eq!(code(&list), 0);
    let text = stdout(&list);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let column = lines[0].find("HOLDER").unwrap();
    assert!(lines[0].starts_with("NAME") && lines[1].starts_with("jobs/1"), "{text}");
    assert_eq!(&lines[1][column - 1..column], " ");
    assert!(lines[1][column..].contains('@'), "{text}");
    assert_eq!(world.code(&["ls", "jobs/"]), 0);
    let other = world.output(&["ls", "other"]);
    assert_eq!((code(&other), stdout(&other)), (0, String::new()));
    assert_eq!(world.code(&["show", "jobs/1"]), 0);
}

#[test]
fn the_fields_of_the_json_are_as_promised() {
    let world = World::new();
    let _holder = world.holder(&["--slots", "1"], "x");
    let _waiter = world.start(&["run", "--slots", "1", "x", "true"]);
    eventually("one waits", || world.waiters("x") == 1);
    let shown = world.show("x");
    assert_eq!(keys(&shown), ["holders", "name", "waiters"]);
    let (holder, waiter) = (&shown["holders"][0], &shown["waiters"][0]);
    assert_eq!(
        keys(holder),
        ["count", "expires_ms", "held_ms", "identity", "mode", "note", "owner", "permits", "token"]
    );
    assert_eq!(
        keys(waiter),
        ["identity", "mode", "note", "owner", "permits", "place", "waiting_ms"]
    );
    assert_eq!(shown["name"], "x");
    assert_eq!((&holder["mode"], &holder["permits"]), (&"permit".into(), &1.into()));
    assert_eq!((&holder["count"], &waiter["place"]), (&1.into(), &1.into()));
    assert!(holder["token"].as_u64().unwrap() > 0);
    assert!(holder["expires_ms"].as_u64().unwrap() <= 30_000);
    assert!(holder["note"].as_str().unwrap().starts_with("sh -c "));
    let listed: Value = serde_json::from_slice(&world.output(&["ls", "--json"]).stdout).unwrap();
    assert_eq!(listed[0]["holders"][0]["owner"], holder["owner"]);
}

#[test]
fn an_exclusive_holder_has_no_permits() {
    let world = World::new();
    let _holder = world.holder(&[], "x");
    let shown = world.show("x");
    assert_eq!(shown["holders"][0]["mode"], "exclusive");
    assert!(shown["holders"][0].get("permits").is_none());
}

#[test]
fn break_takes_only_from_the_holder_with_that_token() {
    let world = World::new();
    let _holder = world.holder(&["--on-lost", "warn"], "x");
    let token = world.token("x");
    let wrong = (token.parse::<u64>().unwrap() - 1).to_string();
    let refused = world.output(&["break", "x", "--token", &wrong, "--reason", "test"]);
    assert_eq!(code(&refused), 1);
    assert!(stderr(&refused).contains("lockkeeper show"), "{refused:?}");
    assert_eq!(world.token("x"), token, "still there");
    let words = ["break", "x", "--token", &token, "--reason", "test", "--json"];
    let done = world.output(&words);
    assert_eq!(code(&done), 0);
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(keys(&json), ["broken", "name", "reason", "token"]);
    assert_eq!(json["broken"], true);
    let again = world.output(&words);
    assert_eq!(code(&again), 1);
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).unwrap()["broken"], false);
    assert_eq!(world.code(&["run", "-n", "x", "true"]), 0);
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
