//! `wait`, `lead`, `doctor`, `events` and `bench` on stores with a server.

use super::{Case, eventually, hold, lockkeeper, text};
use anyhow::{Context, Result, ensure};
use lockkeeper_lab::server::{Kind, Lab, Server};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Child;

pub(super) const CASES: &[Case] = &[
    ("a_name_is_waited_for_and_nothing_taken", waited_for),
    ("a_leader_that_was_broken_campaigns_again", led),
    ("a_store_is_examined", examined),
    ("what_happens_is_followed", followed),
    ("a_store_is_measured_and_left_as_it_was", measured),
    ("a_server_that_is_not_there_is_69_for_every_verb", not_there),
];

/// Ends a process of ours by a signal that it handles.
fn end(child: &mut Child) -> Result<()> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    child.wait()?;
    Ok(())
}

fn nothing_left(server: &Server) -> Result<()> {
    let listed = lockkeeper(server, &["ls", "--json"]).output()?;
    ensure!(listed.stdout == b"[]\n", "{}", text(&listed));
    Ok(())
}

fn show(server: &Server, name: &str) -> Result<Value> {
    let shown = lockkeeper(server, &["show", "--json", name]).output()?;
    Ok(serde_json::from_slice(&shown.stdout)?)
}

fn waited_for(server: &Server) -> Result<()> {
    let free = lockkeeper(server, &["wait", "-w", "0", "job"]).output()?;
    ensure!(free.status.success(), "{}", text(&free));
    let mut holder = hold(server, "job", &server.folder().join("held"), &[])?;
    let late = lockkeeper(server, &["wait", "-w", "300ms", "job"]).output()?;
    ensure!(late.status.code() == Some(75), "{:?} {}", late.status, text(&late));
    let waiting = lockkeeper(server, &["wait", "job"]).spawn()?;
    end(&mut holder)?;
    let waited = waiting.wait_with_output()?;
    ensure!(waited.status.success(), "{}", text(&waited));
    nothing_left(server)
}

fn led(server: &Server) -> Result<()> {
    let file = server.folder().join("terms");
    let script = format!("echo $LOCKKEEPER_TOKEN >> {}; exec sleep 600", file.display());
    let words = ["lead", "--note", "here", "office", "--", "sh", "-c", &script];
    let mut child = lockkeeper(server, &words).spawn()?;
    let terms = || -> Vec<u64> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    eventually("it leads", || Ok(terms().len() == 1));
    let told = lockkeeper(server, &["leader", "--json", "office"]).output()?;
    let told: Value = serde_json::from_slice(&told.stdout)?;
    ensure!(told["leader"]["note"] == "here" && told["leader"]["term"] == terms()[0], "{told}");
    let token = show(server, "office")?["holders"][0]["token"].to_string();
    let words = ["break", "office", "--token", &token, "--reason", "test"];
    let broken = lockkeeper(server, &words).output()?;
    ensure!(broken.status.success(), "{}", text(&broken));
    eventually("it leads again", || Ok(terms().len() == 2));
    ensure!(terms()[0] < terms()[1], "{:?}", terms());
    end(&mut child)?;
    let nobody = lockkeeper(server, &["leader", "office"]).output()?;
    ensure!(nobody.status.code() == Some(1), "{}", text(&nobody));
    nothing_left(server)
}

/// By every sound recipe that the store has.
fn examined(server: &Server) -> Result<()> {
    let recipes = lockkeeper::recipes().iter();
    let recipes = recipes.filter(|it| it.scheme == server.name() && !it.is_unsafe());
    let recipes: Vec<_> = recipes.collect();
    let joint = if server.url().contains('?') { '&' } else { '?' };
    for recipe in &recipes {
        let url = match recipes.len() {
            1 => server.url(),
            _ => format!("{}{joint}recipe={}", server.url(), recipe.name),
        };
        by_recipe(server, &url, recipe.capability.inspects).context(url)?;
    }
    nothing_left(server)
}

fn by_recipe(server: &Server, url: &str, inspects: bool) -> Result<()> {
    let output = lockkeeper(server, &["doctor", "--json", "--store", url]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| text(&output))?;
    // The lab's PostgreSQL is told not to wait for its disk.
    let unsafe_disk = server.name() == "postgres";
    ensure!(output.status.code() == Some(i32::from(unsafe_disk)), "{:?} {report}", output.status);
    let checks = report["checks"].as_array().context("checks")?;
    for wanted in [
        "connection",
        "version",
        "round trip",
        "persistence",
        "eviction",
        "replication",
        "clock",
        "access",
        "promises",
    ] {
        let found = checks.iter().find(|check| check["check"] == wanted);
        let found = found.with_context(|| format!("{wanted} in {report}"))?;
        let expected = unsafe_disk && wanted == "persistence";
        ensure!((found["verdict"] == "problem") == expected, "{found}");
    }
    let of = |name: &str| {
        checks.iter().find(|check| check["check"] == name).map(|it| it["text"].to_string())
    };
    let version = of("version").unwrap_or_default();
    ensure!(version.chars().any(|c| c.is_ascii_digit()), "{version}");
    let access = of("access").unwrap_or_default();
    ensure!(access.contains("locked") && access.contains("and released"), "{access}");
    ensure!(access.contains("listed") == inspects, "{access}");
    ensure!(of("round trip").is_some_and(|it| it.contains("of 20")), "{report}");
    Ok(())
}

fn followed(server: &Server) -> Result<()> {
    let words = ["events", "-f", "--json", "--every", "200ms"];
    let mut child = lockkeeper(server, &words).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    // What was there at the first look is not told: one after the other until one is.
    let server_url = server.url();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let busy = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
            run.args(["run", "job", "--", "sleep", "1"]).env("LOCKKEEPER_STORE", &server_url);
            let _ = run.status();
        }
    });
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("released") {
        let line = lines.next().context("it ended")??;
        let event: Value = serde_json::from_str(&line)?;
        ensure!(event["name"] == "job", "{line}");
        seen.push(event["event"].as_str().context("event")?.to_owned());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let _ = busy.join();
    child.kill()?;
    child.wait()?;
    ensure!(seen.iter().all(|kind| kind == "granted" || kind == "released"), "{seen:?}");
    nothing_left(server)
}

fn measured(server: &Server) -> Result<()> {
    let words = ["bench", "--seconds", "1", "--tasks", "3", "--json"];
    let output = lockkeeper(server, &words).output()?;
    ensure!(output.status.success(), "{:?} {}", output.status, text(&output));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let rows = report["rows"].as_array().context("rows")?;
    ensure!(rows.len() == 5 && rows.iter().all(|row| row["count"].as_u64() > Some(0)), "{report}");
    nothing_left(server)
}

fn not_there(server: &Server) -> Result<()> {
    server.kill()?;
    for words in [
        &["wait", "job"][..],
        &["lead", "job", "--", "true"],
        &["leader", "job"],
        &["doctor"],
        &["events", "-f"],
        &["bench"],
    ] {
        let output = lockkeeper(server, words).output()?;
        ensure!(
            output.status.code() == Some(69),
            "{words:?}: {:?} {}",
            output.status,
            text(&output)
        );
        ensure!(text(&output).contains("127.0.0.1"), "{words:?}: {}", text(&output));
    }
    Ok(())
}

/// A Redis that evicts, one that writes nothing to disk, a replica, and a wrong password.
pub(super) fn sick_redis(lab: &Lab) -> Result<()> {
    let server = lab.start(Kind::Redis)?;
    let set = |words: &[&str]| server.redis()?.ask(words).map(drop);
    let report = |url: &str| -> Result<(Option<i32>, Value)> {
        let output = lockkeeper(&server, &["doctor", "--json", "--store", url]).output()?;
        let report = serde_json::from_slice(&output.stdout).with_context(|| text(&output))?;
        Ok((output.status.code(), report))
    };
    let verdict = |report: &Value, wanted: &str| -> String {
        let checks = report["checks"].as_array().cloned().unwrap_or_default();
        let found = checks.iter().find(|check| check["check"] == wanted);
        found.map(|check| check["verdict"].to_string().replace('"', "")).unwrap_or_default()
    };
    set(&["CONFIG", "SET", "appendonly", "no"])?;
    set(&["CONFIG", "SET", "save", ""])?;
    let (code, found) = report(&server.url())?;
    ensure!(code == Some(0) && verdict(&found, "persistence") == "warning", "{code:?} {found}");
    ensure!(found["verdict"] == "warning", "{found}");

    set(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    let refused = lockkeeper(&server, &["doctor"]).output()?;
    ensure!(refused.status.code() == Some(64), "{:?} {}", refused.status, text(&refused));
    let (code, found) = report(&format!("{}?allow_eviction=true", server.url()))?;
    ensure!(code == Some(1) && verdict(&found, "eviction") == "problem", "{code:?} {found}");
    ensure!(verdict(&found, "access") == "ok", "{found}");
    set(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])?;

    set(&["REPLICAOF", "127.0.0.1", "1"])?;
    let (code, found) = report(&server.url())?;
    ensure!(code == Some(1) && verdict(&found, "replication") == "problem", "{code:?} {found}");
    ensure!(verdict(&found, "access") == "problem", "{found}");
    set(&["REPLICAOF", "NO", "ONE"])?;

    set(&["CONFIG", "SET", "requirepass", "hunter2"])?;
    let url = format!("redis://:wrong@{}", server.address());
    for url in [server.url(), url] {
        let output = lockkeeper(&server, &["doctor", "--store", &url]).output()?;
        ensure!(output.status.code() == Some(77), "{:?} {}", output.status, text(&output));
        ensure!(!text(&output).contains("wrong@"), "{}", text(&output));
    }
    Ok(())
}
