//! `lockkeeper id`: what is printed, what is refused, and what becomes of worker numbers.

use crate::support::{Running, World, code, eventually, lockkeeper, stderr, stdout};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Long enough for a busy machine to confirm worker numbers in time.
const WINDOW: &str = "5s";

/// What is printed, in lines; it must succeed.
#[track_caller]
fn ids(world: &World, words: &[&str]) -> Vec<String> {
    let output = world.output(&[&["id"], words].concat());
    assert_eq!(code(&output), 0, "{words:?}: {output:?}");
    stdout(&output).lines().map(str::to_owned).collect()
}

#[track_caller]
fn json(world: &World, words: &[&str]) -> Value {
    let text = ids(world, &[words, &["--json"]].concat());
    assert_eq!(text.len(), 1, "{words:?}: {text:?}");
    serde_json::from_str(&text[0]).unwrap()
}

#[test]
fn every_kind_prints_as_many_as_asked_for_and_no_id_twice() {
    let world = World::new();
    for (words, length) in [
        (&["uuid4"][..], 36),
        (&["uuid7"], 36),
        (&["uuid"], 36),
        (&["ulid"], 26),
        (&["sequence"], 0),
        (&["segment"], 0),
        (&["auto-increment"], 0),
        (&["snowflake"], 18),
        (&["snowflake", "--js"], 15),
        (&["snowflake", "--layout", "41/8/8", "--epoch", "2026-01-01"], 0),
        (&["dated"], 19),
        (&["dated", "--digits", "day16"], 16),
        (&["dated", "--digits", "second16"], 16),
        (&["dated", "--digits", "worker19"], 19),
        (&["dated", "--offset", "-03:30", "--prefix", "ORD", "--check-digit"], 23),
    ] {
        let one = ids(&world, words);
        assert_eq!(one.len(), 1, "{words:?}: {one:?}");
        let more = ids(&world, &[words, &["-n", "300"]].concat());
        let all: HashSet<_> = one.iter().chain(&more).collect();
        assert_eq!(all.len(), 301, "{words:?}: {more:?}");
        assert!(all.iter().all(|id| length == 0 || id.len() == length), "{words:?}: {more:?}");
        let array = json(&world, words);
        assert_eq!(array.as_array().unwrap().len(), 1, "{words:?}: {array}");
        assert!(array[0].is_string(), "{words:?}: {array}");
    }
}

#[test]
fn numbers_go_on_where_they_were_and_above_a_floor() {
    let world = World::new();
    assert_eq!(ids(&world, &["sequence", "--key", "invoices", "-n", "2"]), ["1", "2"]);
    assert_eq!(ids(&world, &["next", "invoices"]), ["3"]);
    assert_eq!(ids(&world, &["next", "invoices", "--floor", "10000"]), ["10000"]);
    assert_eq!(ids(&world, &["sequence", "--key", "invoices", "--existing"]), ["10001"]);
    // Those of another key know nothing of them.
    assert_eq!(ids(&world, &["sequence", "--key", "orders"]), ["1"]);
    assert_eq!(json(&world, &["next", "orders", "-n", "2"]), serde_json::json!(["2", "3"]));
    assert_eq!(ids(&world, &["sequence", "--key", "orders", "--floor", "500"]), ["500"]);
}

#[test]
fn an_id_tells_what_it_is_made_of() {
    let world = World::new();
    let id = ids(&world, &["snowflake"]).remove(0);
    let by_kind = json(&world, &["inspect", &id, "--kind", "snowflake"]);
    assert_eq!(by_kind, json(&world, &["inspect", &id, "--key", "default-snowflake"]));
    let workers = json(&world, &["workers"]);
    assert_eq!(by_kind["worker"], workers[0]["worker"]);
    let day = by_kind["time"].as_str().unwrap().split('T').next().unwrap().to_owned();
    let range = ids(&world, &["range", &day, "--kind", "snowflake"]);
    let number = |text: &str| text.parse::<u64>().unwrap();
    assert!((number(&range[0])..=number(&range[1])).contains(&number(&id)), "{range:?} {id}");

    let words = ["inspect", "ORD20261115073000000014", "--kind", "dated", "--prefix", "ORD"];
    let words = [&words[..], &["--offset", "+08:00", "--check-digit"]].concat();
    let told = json(&world, &words);
    assert_eq!(told["time"], "2026-11-14T23:30:00.000Z");
    assert_eq!((&told["number"], &told["sequence"]), (&"2026111507300000001".into(), &"1".into()));
    assert_eq!(told["worker"], Value::Null);

    for (id, kind, time) in [
        ("01a1ebea-f7c9-75d5-b480-ddf59a4fcc0d", "uuid7", Some("2026-11-17T23:50:07.049Z")),
        ("0d5dd421-2d89-48ae-814f-178c7ae0a1fd", "uuid4", None),
        ("01M7NYNXZY27ZXMH46Y94TPBZ4", "ulid", Some("2026-11-17T23:50:07.102Z")),
    ] {
        let told = json(&world, &["inspect", id]);
        assert_eq!(told["kind"], kind);
        assert_eq!(told["time"].as_str(), time, "{id}");
    }
    let shown = ids(&world, &["inspect", "4194304", "--kind", "snowflake"]);
    assert_eq!(shown[0], "kind      snowflake 41/10/12 since 2025-01-01");
    assert!(shown[1].starts_with("time      2025-01-01T00:00:00.001Z, "), "{shown:?}");
    assert_eq!(shown[2..], ["worker    0", "sequence  0"]);
}

#[test]
fn a_day_has_bounds_in_every_kind_with_time() {
    let world = World::new();
    let range = |words: &[&str]| ids(&world, &[&["range", "2026-11-15"], words].concat());
    assert_eq!(range(&["--kind", "dated"]), ["2026111500000000000", "2026111523595999999"]);
    assert_eq!(
        range(&["--kind", "dated", "--digits", "worker19", "--offset", "+08:00"]),
        ["2611150000000000000", "2611152359599999999"]
    );
    assert_eq!(range(&["--kind", "uuid7"])[0], "01a1dc80-f000-7000-8000-000000000000");
    assert_eq!(range(&["--kind", "ulid"])[1], "01M7GTEJZZZZZZZZZZZZZZZZZZ");
    let json = json(&world, &["range", "2026-11-15", "--kind", "striped"]);
    assert_eq!(json["first"], "59011200000000");
    ids(&world, &["dated", "--key", "orders", "--digits", "day16"]);
    assert_eq!(range(&["--key", "orders"]), ["2026111500000000", "2026111599999999"]);
}

#[test]
fn keys_are_listed_with_what_they_are() {
    let world = World::new();
    let none = world.output(&["id", "keys"]);
    assert_eq!((code(&none), stderr(&none)), (1, "lockkeeper: there are no ids\n".to_owned()));
    assert_eq!(world.code(&["id", "workers"]), 1);
    ids(&world, &["snowflake", "--js"]);
    ids(&world, &["sequence", "--key", "invoices"]);
    let keys = json(&world, &["keys"]);
    assert_eq!(keys[0]["key"], "default-snowflake-41/6/6-1735689600000");
    assert_eq!((&keys[0]["kind"], &keys[1]["kind"]), (&"snowflake".into(), &"sequence".into()));
    assert!(keys[1]["made"].as_str().unwrap().ends_with('Z'));
    let shown = ids(&world, &["keys"]);
    assert!(shown[0].starts_with("KEY ") && shown[1].contains("41/6/6 since 2025-01-01"));
    assert!(shown[2].starts_with("invoices "), "{shown:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_64() {
    let world = World::new();
    ids(&world, &["sequence", "--key", "invoices"]);
    for (words, hint) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["sequence", "-n", "0"], "1.."),
        (&["segment", "--key", "invoices"], "are sequence in this store, not segment"),
        (&["sequence", "--existing"], "store was lost"),
        (&["sequence", "--store", "memory:"], "sqlite:"),
        (&["sequence", "--layout", "41/10/12"], "--layout"),
        (&["snowflake", "--layout", "41/10/13"], "63 at the most"),
        (&["snowflake", "--layout", "41-10-12"], "write it as 41/10/12"),
        (&["snowflake", "--layout", "41/8/8", "--js"], "cannot be used with"),
        (&["snowflake", "--epoch", "2999-01-01"], "between 1970 and now"),
        (&["snowflake", "--epoch", "soon"], "write it as 2026-11-15"),
        (&["snowflake", "--key", "short", "--window", "1ms"], "between 1 s and 24 hours"),
        (&["snowflake", "--window", "3s"], "add --key"),
        (&["dated", "--offset", "Europe/Berlin"], "write it as +08:00"),
        (&["dated", "--digits", "second20"], "worker19"),
        (&["dated", "--prefix", "42"], "letters"),
        (&["dated", "--window", "30s"], "worker number"),
        (&["next", "nobody"], "lockkeeper id keys"),
        (&["next", "invoices", "--window", "3s"], "worker number"),
        (&["inspect", "abc"], "no id"),
        (&["inspect", ""], "no id"),
        (&["inspect", "42"], "--kind snowflake"),
        (&["inspect", "abc", "--kind", "snowflake"], "no id"),
        (&["inspect", "2026133200000000001", "--kind", "dated"], "no moment"),
        (&["inspect", "99999999999999999999", "--kind", "sequence"], "2^63"),
        (&["inspect", "1", "--kind", "sequence", "--js"], "--kind snowflake"),
        (&["inspect", "1", "--key", "invoices", "--offset", "+01:00"], "--kind dated"),
        (&["inspect", "1", "--key", "nobody"], "has no ids"),
        (&["range", "2026-02-30", "--kind", "dated"], "is no day"),
        (&["range", "2026-11-15", "--kind", "sequence"], "tell no time"),
        (&["range", "2026-11-15", "--kind", "uuid4"], "tell no time"),
        (&["range", "2026-11-15"], "--kind"),
        (&["striped", "--store", "sqlite:a.db"], "2 to 64 stores"),
        (&["striped"], "--store"),
    ] {
        let output = world.output(&[&["id"], words].concat());
        assert_eq!(code(&output), 64, "{words:?}: {output:?}");
        assert!(stderr(&output).contains(hint), "{words:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{words:?}");
    }
}

#[test]
fn a_store_that_is_not_there_is_69() {
    for words in [&["sequence"][..], &["snowflake"], &["keys"], &["workers"], &["next", "x"]] {
        let words = [&["id"], words, &["--store", "redis://127.0.0.1:1"]].concat();
        let output = lockkeeper(&words).output().unwrap();
        assert_eq!(code(&output), 69, "{words:?}: {output:?}");
    }
}

/// Ids go on while one of two stores cannot be reached, and stores are not mixed up.
#[test]
fn striped_ids_go_on_while_a_store_is_away() {
    let world = World::new();
    let urls = ["one.db", "two.db"].map(|name| format!("sqlite:{}", world.file(name)));
    let striped = |one: &str, two: &str| {
        let mut command = lockkeeper(&["id", "striped", "--store", one, "--store", two, "-n", "9"]);
        command.output().unwrap()
    };
    let mut all = HashSet::new();
    let away = "redis://127.0.0.1:1";
    for (one, two) in [(&*urls[0], &*urls[1]), (&urls[0], away), (away, &urls[1]), (&urls[0], away)]
    {
        let output = striped(one, two);
        assert_eq!(code(&output), 0, "{output:?}");
        all.extend(stdout(&output).lines().map(str::to_owned));
    }
    assert_eq!(all.len(), 36);
    assert_eq!(code(&striped(away, away)), 69);
    let mixed = striped(&urls[1], &urls[0]);
    assert_eq!(code(&mixed), 64, "{mixed:?}");
    let words = ["id", "striped", "--key", "by-variable"];
    let output = lockkeeper(&words).env("LOCKKEEPER_STORES", urls.join(" ")).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
}

#[test]
fn a_reader_that_goes_away_ends_it_cleanly() {
    let world = World::new();
    let snowflake = ["snowflake", "--key", "piped", "--window", WINDOW];
    for words in [&["uuid7"][..], &["sequence"], &["segment"], &snowflake, &["dated"]] {
        let words = [&["id"], words, &["-n", "1000000000"]].concat();
        let mut running = world.start(&words);
        let mut reader = BufReader::new(running.child().stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "{words:?}: {line:?}");
        drop(reader);
        let output = running.finish();
        assert_eq!(code(&output), 0, "{words:?}: {output:?}");
        let said = stderr(&output);
        assert!(said.is_empty() || said.contains("the ids are new"), "{words:?}: {said}");
    }
    let workers = json(&world, &["workers"]);
    assert_eq!(workers[0]["state"], "free", "{workers}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = world.command(&["id", "sequence"]).stdout(full).output().unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
}

/// Starts one that goes on and on, and waits until it has printed an id.
fn endless(world: &World, key: &str) -> Running {
    let words = ["id", "snowflake", "--key", key, "--layout", "41/1/12", "--window", WINDOW];
    let mut command = world.command(&[&words[..], &["-n", "1000000000000"]].concat());
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut reader = BufReader::new(running.child().stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    // Somebody must go on reading, or it stands still.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    running
}

fn states(world: &World, key: &str) -> Vec<String> {
    let workers = json(world, &["workers", "--key", key]);
    let workers = workers.as_array().unwrap().iter();
    workers.map(|worker| worker["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_signal_gives_the_worker_number_back() {
    let world = World::new();
    for (signal, expected) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let mut running = endless(&world, "signalled");
        assert_eq!(states(&world, "signalled"), ["held"]);
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(expected));
        assert_eq!(states(&world, "signalled"), ["free"]);
    }
}

/// Both numbers that there are.
#[test]
fn the_numbers_of_killed_processes_are_seen_and_used_again() {
    let world = World::new();
    let mut killed = [endless(&world, "killed"), endless(&world, "killed")];
    assert_eq!(states(&world, "killed"), ["held", "held"]);
    let words = ["snowflake", "--key", "killed", "--layout", "41/1/12", "--window", WINDOW];
    let words = [&["id"], &words[..]].concat();
    let full = world.output(&words);
    assert_eq!(code(&full), 69, "{full:?}");
    assert!(stderr(&full).contains("`lockkeeper id workers` lists them"), "{full:?}");
    for one in &mut killed {
        one.signal(Signal::SIGKILL);
        one.wait();
    }
    eventually("they are silent", || states(&world, "killed") == ["silent", "silent"]);
    eventually("a number is free again", || code(&world.output(&words)) == 0);
    let mut states = states(&world, "killed");
    states.sort_unstable();
    assert_eq!(states, ["free", "silent"]);
}

/// A file and keys that do not exist yet, made by all of them at once.
#[test]
fn a_crowd_gets_no_id_twice() {
    const CROWD: usize = 100;
    let world = World::new();
    let start = |kind: &str| world.start(&["id", kind, "-n", "50"]);
    for kind in ["snowflake", "sequence", "segment", "dated"] {
        let runs: Vec<Running> = (0..CROWD).map(|_| start(kind)).collect();
        let mut all = HashSet::new();
        for output in runs.into_iter().map(Running::finish) {
            assert_eq!(code(&output), 0, "{kind}: {}", stderr(&output));
            let text = stdout(&output);
            let printed: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
            assert!(printed.is_sorted_by(|one, two| one < two), "{kind}: {printed:?}");
            all.extend(printed);
        }
        assert_eq!(all.len(), CROWD * 50, "{kind}");
    }
}

#[test]
fn a_benchmark_shows_a_line_for_each_kind_that_the_store_has() {
    let world = World::new();
    let lines = ids(&world, &["bench", "--time", "10ms", "--store", "memory:"]);
    let first = |line: &String| line.split("  ").next().unwrap().to_owned();
    let kinds: Vec<_> = lines.iter().skip(1).map(first).collect();
    let expected =
        ["uuid4", "uuid7", "ulid", "sequence", "segment", "snowflake", "dated", "dated worker19"];
    assert_eq!(kinds, expected, "{lines:?}");
    assert_eq!(ids(&world, &["bench", "sequence", "--time", "10ms"]).len(), 2);
    assert_eq!(world.code(&["id", "bench", "striped", "--time", "10ms"]), 64);
}
