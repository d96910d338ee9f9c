//! `doctor` on a file, and on what is no store.

use crate::support::{World, code, lockkeeper, stderr, stdout};
use serde_json::Value;

#[test]
fn a_file_is_examined_and_nothing_is_left_in_it() {
    let world = World::new();
    let output = world.output(&["doctor"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let text = stdout(&output);
    for check in [
        "connection",
        "version",
        "round trip",
        "persistence",
        "replication",
        "eviction",
        "clock",
        "access",
        "promises",
    ] {
        let line = text.lines().find(|line| line.contains(&format!("  {check}  ")));
        assert!(line.is_some_and(|line| line.starts_with("ok ")), "{check}: {text}");
    }
    assert!(text.contains("SQLite 3.") && text.contains("locks.db"), "{text}");
    assert!(text.contains("locked, renewed, listed and released"), "{text}");
    assert_eq!(stdout(&world.output(&["ls", "--json"])), "[]\n");
}

#[test]
fn json_has_a_verdict_for_all_and_for_each() {
    let world = World::new();
    let output = world.output(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"], "ok", "{report}");
    assert!(report["store"].as_str().unwrap().starts_with("sqlite:"), "{report}");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() >= 9 && checks.iter().all(|check| check["verdict"] == "ok"), "{report}");
}

#[test]
fn a_store_that_cannot_be_reached_is_said_as_by_others() {
    let world = World::new();
    for (url, expected) in [
        ("redis://127.0.0.1:1", 69),
        ("etcd://127.0.0.1:1", 69),
        ("mongodb://me:hunter2@localhost", 64),
        ("redis://127.0.0.1:1?colour=red", 64),
    ] {
        let output = world.output(&["doctor", "--store", url]);
        assert_eq!(code(&output), expected, "{url}: {output:?}");
        assert!(stdout(&output).is_empty() && !stderr(&output).contains("hunter2"), "{output:?}");
    }
    assert_eq!(world.code(&["doctor", "extra"]), 64);
    let help = lockkeeper(&["doctor", "--help"]).output().unwrap();
    assert!(stdout(&help).contains("a problem was found"), "{help:?}");
}

#[test]
fn memory_is_warned_of_and_no_problem() {
    let output = lockkeeper(&["doctor", "--store", "memory:"]).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(stdout(&output).contains("warning  persistence"), "{output:?}");
}
