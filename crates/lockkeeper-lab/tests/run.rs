//! The lab on itself: short runs with real processes that are killed and paused.

use std::process::{Command, Output};

fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(words).output().expect("the lab runs")
}

/// The number that stands first behind `title` in the printed summary.
fn counted(output: &Output, title: &str) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.trim_start().starts_with(title));
    let words = line.unwrap_or_else(|| panic!("no {title} in:\n{text}"));
    let digits = words.split_whitespace().find_map(|word| word.trim_end_matches(',').parse().ok());
    digits.unwrap_or_else(|| panic!("no number in {words:?}"))
}

fn survives(work: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    let out = folder.path().join("history");
    let out = out.to_str().expect("a path");
    let common = ["run", "--store", &store, "--work", work, "--out", out];
    let run =
        lab(&[&common[..], &["--seconds", "12", "--seed", "7", "--fault", "kill,pause"]].concat());
    assert_ne!(run.status.code(), Some(1), "{run:?}");
    // Judged again from what was saved, and for order too.
    let judged = lab(&["check", out, "--fair"]);
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(judged.status.success(), "{text}");
    for title in ["hand-overs", "kill", "pause"] {
        let least = if title == "hand-overs" { 100 } else { 1 };
        let seen = counted(&judged, title);
        assert!(seen >= least, "unknown: only {seen} {title} in\n{text}");
    }
    let picture = std::fs::read_to_string(format!("{out}/timeline.html")).expect("a picture");
    assert!(picture.contains("<svg"));
}

#[test]
fn locks_exclude_while_processes_are_killed_and_paused() {
    survives("lock");
}

#[test]
fn readers_and_writers_exclude_while_processes_are_killed_and_paused() {
    survives("rw");
}

#[test]
fn a_history_that_is_none_is_refused_with_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history.jsonl");
    std::fs::write(&file, "{\"at\":1}\n").expect("written");
    let output = lab(&["check", file.to_str().expect("a path")]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1"), "{output:?}");
}
