//! Short runs, over kinds, stores and faults.

use libtest_mimic::{Failed, Trial};
use lockkeeper_lab::server::{Kind, missing};
use std::process::Command;

/// A store without a server.
const FILE: Option<Kind> = None;

/// What ids, on which server, what is broken, and for how many seconds.
const RUNS: &[(&str, Option<Kind>, &str, u32)] = &[
    ("sequence", FILE, "kill,pause", 4),
    ("sequence", Some(Kind::Redis), "server-kill,partition", 5),
    ("sequence", Some(Kind::Redis), "server-restart-empty", 5),
    ("sequence", Some(Kind::Postgres), "partition,lost-reply", 5),
    ("sequence", Some(Kind::MariaDb), "server-kill,kill", 5),
    ("sequence", Some(Kind::Etcd), "server-kill,lost-reply", 5),
    ("sequence", Some(Kind::ZooKeeper), "server-kill,lost-reply", 5),
    ("sequence", Some(Kind::Memcached), "server-restart-empty,kill", 5),
    ("segment", FILE, "kill,pause,clock-jump", 5),
    ("segment", Some(Kind::Redis), "server-restart-empty,kill", 5),
    ("segment", Some(Kind::Postgres), "server-kill,kill", 5),
    ("auto-increment", Some(Kind::Postgres), "server-kill,kill", 5),
    ("auto-increment", Some(Kind::MariaDb), "server-kill,lost-reply", 5),
    ("striped", Some(Kind::Redis), "server-kill,kill", 6),
    ("striped", Some(Kind::MariaDb), "server-kill", 6),
    ("snowflake", Some(Kind::Redis), "partition,server-kill", 6),
    ("snowflake-narrow", FILE, "kill,pause", 6),
    ("snowflake-narrow", FILE, "clock-jump,kill", 8),
    ("snowflake-narrow", Some(Kind::Redis), "clock-jump,pause", 8),
    ("snowflake-narrow", Some(Kind::Redis), "server-restart-empty,partition", 9),
    ("snowflake-narrow", Some(Kind::Postgres), "server-pause,kill", 6),
    ("snowflake-narrow", Some(Kind::Etcd), "partition,kill", 6),
    ("snowflake-narrow", Some(Kind::Memcached), "server-restart-empty,pause", 9),
    ("dated", Some(Kind::Redis), "server-restart-empty,kill", 5),
    ("dated", Some(Kind::Postgres), "server-kill,clock-jump", 6),
    ("dated-local", FILE, "kill,pause", 6),
    ("dated-local", Some(Kind::ZooKeeper), "partition,kill", 6),
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial =
        |&(kind, server, fault, seconds): &(&'static str, Option<Kind>, &'static str, u32)| {
            let store = server.map_or("sqlite", Kind::word);
            let name = format!("{kind} {store} {fault}");
            let trial = Trial::test(name, move || {
                survives(kind, server, fault, seconds).map_err(Failed::from)
            });
            match server.and_then(|server| missing(&[server])) {
                Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
                None => trial,
            }
        };
    let mut trials: Vec<_> = RUNS.iter().map(trial).collect();
    trials.push(Trial::test("too short a run is unknown", || too_short().map_err(Failed::from)));
    trials.push(Trial::test("what makes no sense is no verdict", || {
        no_sense().map_err(Failed::from)
    }));
    trials
}

fn lab(words: &[&str]) -> Result<(Option<i32>, String), String> {
    let run = Command::new(env!("CARGO_BIN_EXE_lab")).args(words).output();
    let run = run.map_err(|error| error.to_string())?;
    let [out, err] =
        [&run.stdout, &run.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    Ok((run.status.code(), out + &err))
}

fn survives(kind: &str, server: Option<Kind>, fault: &str, seconds: u32) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    let out = folder.path().join("ids");
    let asked = std::env::var("LOCKKEEPER_LAB_SECONDS").ok();
    let seconds = asked.unwrap_or_else(|| seconds.to_string());
    let out = out.to_string_lossy();
    let mut words = vec!["ids", "--kind", kind, "--processes", "3", "--seed", "7", "--out", &out];
    words.extend(match server {
        Some(server) => ["--server", server.word()],
        None => ["--store", &file],
    });
    words.extend(["--fault", fault, "--seconds", &seconds]);
    match lab(&words)? {
        (Some(0), _) => Ok(()),
        (code, text) => Err(format!("{code:?}\n{text}")),
    }
}

fn too_short() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    let out = folder.path().join("ids");
    let out = out.to_string_lossy();
    let words = ["ids", "--kind", "sequence", "--store", &file, "--fault", "kill"];
    let short = ["--seconds", "0", "--out", &out];
    match lab(&[&words[..], &short].concat())? {
        (Some(2), text) if text.contains("no kill within the run") => Ok(()),
        (code, text) => Err(format!("{code:?}\n{text}")),
    }
}

fn no_sense() -> Result<(), String> {
    for (words, says) in [
        ("ids --kind striped --store sqlite:/tmp/x.db", "takes 2 --store"),
        ("ids --kind sequence --store sqlite:/tmp/x.db --fault server-kill", "--server"),
        ("ids --kind sequence --store sqlite:/tmp/x.db --fault partition", "a host"),
        ("ids --kind sequence --server redlock", "quorum"),
        ("ids --kind sequence --server redis --fault failover", "none of ids"),
        ("ids --kind auto-increment --server postgres --fault server-restart-empty", "again"),
        ("ids --kind sequence", "--store"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        match lab(&words)? {
            (Some(3), text) if text.contains(says) => {}
            (code, text) => return Err(format!("{words:?}: {code:?} {text}")),
        }
    }
    Ok(())
}
