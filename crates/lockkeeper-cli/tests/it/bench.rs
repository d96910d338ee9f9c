//! `bench`: figures, and nothing left behind.

use crate::support::{World, code, eventually, is_ignored_here, lockkeeper, stderr, stdout};
use nix::sys::signal::Signal;
use serde_json::Value;

#[test]
fn every_figure_is_there_and_every_name_free_again() {
    let world = World::new();
    let output = world.output(&["bench", "--seconds", "1", "--tasks", "4", "--json"]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(stderr(&output), "", "no progress without a terminal");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5, "{report}");
    for row in rows {
        assert!(row["count"].as_u64().unwrap() > 0, "{row}");
        assert!(row["p50_us"].as_u64().unwrap() <= row["p99_us"].as_u64().unwrap(), "{row}");
        assert!(row["round_trips"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(
        (&rows[0]["what"], &rows[0]["round_trips"]),
        (&"bare round trip".into(), &1.0.into())
    );
    assert_eq!(stdout(&world.output(&["ls", "--json"])), "[]\n");
    let output = world.output(&["bench", "--seconds", "1", "--tasks", "2"]);
    assert!(stdout(&output).contains("acquire + release, 2 tasks"), "{output:?}");
}

#[test]
fn two_at_a_time_would_measure_each_other() {
    let world = World::new();
    let _other = world.holder(&[], "lockkeeper/bench");
    let output = world.output(&["bench", "--seconds", "1"]);
    assert_eq!(code(&output), 75, "{output:?}");
    assert!(stderr(&output).contains("another bench"), "{output:?}");
}

#[test]
fn an_interrupt_gives_everything_back() {
    if is_ignored_here(Signal::SIGINT) {
        return;
    }
    let world = World::new();
    let mut running = world.start(&["bench", "--seconds", "60", "--tasks", "4"]);
    let busy = || stdout(&world.output(&["ls"])).contains("lockkeeper/bench");
    eventually("it measures", busy);
    running.signal(Signal::SIGINT);
    assert_eq!(running.wait().code(), Some(130));
    eventually("nothing is left", || stdout(&world.output(&["ls", "--json"])) == "[]\n");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new();
    for (words, expected) in [
        (&["bench", "--seconds", "0"][..], 64),
        (&["bench", "--tasks", "0"], 64),
        (&["bench", "--tasks", "1000"], 64),
        (&["bench", "--store", "memory:"], 64),
        (&["bench", "--store", "redis://127.0.0.1:1"], 69),
    ] {
        assert_eq!(world.code(words), expected, "{words:?}");
    }
    let help = stdout(&lockkeeper(&["bench", "--help"]).output().unwrap());
    assert!(help.contains("bare round trip"), "{help}");
}
