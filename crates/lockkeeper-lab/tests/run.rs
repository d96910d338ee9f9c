//! The lab on itself: short runs with real processes that are killed and paused.

use lockkeeper::backend::memory::Memory;
use lockkeeper_lab::check::{Demands, Verdict, check};
use lockkeeper_lab::workload::{Trial, Work};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

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

/// Threads stand for processes, and one of them is blocked now and then.
#[test]
fn memory_excludes_while_threads_are_stalled() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path");
    let words = ["run", "--store", "memory:", "--seconds", "4", "--seed", "7", "--fault", "stall"];
    let run = lab(&[&words[..], &["--out", out]].concat());
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(matches!(run.status.code(), Some(0 | 2)), "{run:?}");
    assert!(counted(&run, "hand-overs") >= 100, "{text}");
    assert!(counted(&run, "stall") >= 1 && counted(&run, "expiries") >= 1, "{text}");
}

/// The same workload from within a test, on a store that it brings.
#[test]
fn memory_keeps_its_promises_whatever_is_asked_of_it() {
    for work in [Work::Rw, Work::Permits, Work::Cancel] {
        let folder = tempfile::tempdir().expect("a folder");
        let (length, healing) = (Duration::from_secs(1), Duration::from_millis(200));
        let trial = Trial { work, length, healing, ..Trial::new(folder.path().to_owned()) };
        let run = trial.run_on(Arc::new(Memory::new())).expect("a run");
        assert!(run.fair && run.remarks.is_empty(), "{run:?}");
        let demands = Demands { fair: true, contended_percent: 10, ..Demands::default() };
        let report = check(&run.records, &demands);
        assert_eq!(report.verdict, Verdict::Pass, "{work:?} {report}");
    }
}

#[test]
fn what_the_lab_cannot_do_is_no_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("sqlite:{}/x.db", folder.path().display());
    for (words, says) in [
        ("run --store memory: --fault kill", "--fault stall"),
        ("run --store memory: --fault partition", "with a host in its URL"),
        ("run --store sqlite:x.db --fault stall", "--fault pause"),
        ("run --store sqlite:x.db --fault server-kill", "--server"),
        ("run --store sqlite:/no/such/folder/x.db", "does not exist"),
        ("run --store sqlite:x.db?recipe=a --recipe b", "names a recipe already"),
        ("run --store memory: --recipe queue", "recipe"),
        ("run --store nothing", "scheme"),
        ("run --store mongodb://me:hunter2@h", "known ones"),
        ("run --store memory: --server redis", "cannot be used with"),
        ("run --server oracle", "the lab can start redis"),
        ("run", "--store"),
        ("check /no/such/history", "cannot open"),
    ] {
        let words = words.replace("sqlite:x.db", &file);
        let output = lab(&words.split(' ').collect::<Vec<_>>());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{words}: {output:?}");
        assert!(text.contains(says), "{words}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_folder_with_a_history_takes_no_second_one() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("driver.jsonl"), "").expect("written");
    let out = folder.path().to_str().expect("a path");
    let run = lab(&["run", "--store", "memory:", "--seconds", "1", "--out", out]);
    assert_eq!(run.status.code(), Some(3), "{run:?}");
}

/// A run that is too short shows nothing, and says how to ask for it again.
#[test]
fn too_short_a_run_is_unknown() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path");
    let words = ["run", "--store", "memory:", "--seconds", "1", "--processes", "1", "--seed", "5"];
    let run = lab(&[&words[..], &["--out", out]].concat());
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(2), "{text}");
    assert!(text.contains("--processes 1") && text.contains("--seed 5"), "{text}");
}

#[test]
fn a_history_that_is_none_is_refused_with_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history.jsonl");
    std::fs::write(&file, "{\"at\":1}\n").expect("written");
    let output = lab(&["check", file.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1"), "{output:?}");
}
