//! What the command line says of several servers that vote.

use crate::{lockkeeper, text};
use anyhow::{Result, ensure};
use libtest_mimic::{Failed, Trial};
use lockkeeper_lab::server::{Kind, Lab, Server, missing};
use lockkeeper_lab::trials::eventually_so as eventually;
use std::process::Output;
use std::sync::Arc;

type Case = (&'static str, fn(&Lab) -> Result<()>);

const CASES: &[Case] = &[
    ("who_does_not_vote_is_said_and_why", who_does_not_vote),
    ("few_servers_and_long_timeouts_are_warned_of", warned),
];

pub(crate) fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let trial = |&(name, case): &Case| {
        let lab = lab.clone();
        let trial = Trial::test(format!("redlock::{name}"), move || {
            case(&lab).map_err(|error| Failed::from(format!("{error:?}")))
        });
        match missing(&[Kind::Redis]) {
            Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
            None => trial,
        }
    };
    CASES.iter().map(trial).collect()
}

/// Runs the command line on these servers.
fn on(servers: &[Server], options: &str, words: &[&str]) -> Result<Output> {
    let hosts: Vec<_> = servers.iter().map(Server::address).collect();
    let url = format!("redlock://{}?{options}", hosts.join(","));
    Ok(lockkeeper(&servers[0], words).env("LOCKKEEPER_STORE", url).output()?)
}

/// In the log, by `show`, and in the error when a majority is missing.
fn who_does_not_vote(lab: &Lab) -> Result<()> {
    let servers = lab.redis().start_many(5)?;
    let delayed = "timeout=1s&min_uptime=6s";
    let run = |name: &str| on(&servers, delayed, &["run", "-n", name, "--", "true"]);
    // They were all started just now.
    let output = run("job")?;
    let said = text(&output);
    ensure!(!output.status.success() && said.contains("0 of 5 nodes can vote"), "{said}");
    ensure!(servers.iter().all(|server| said.contains(&server.address())), "{said}");
    eventually("they vote", || Ok(run("job")?.status.success()));
    eventually("all of them", || Ok(text(&run("job")?).is_empty()));
    servers[3].kill()?;
    servers[4].restart_empty()?;
    let (killed, young) = (servers[3].address(), servers[4].address());
    let output = run("job")?;
    let said = text(&output);
    ensure!(output.status.success(), "{said}");
    let line = |part: &str| said.lines().find(|line| line.contains(part)).unwrap_or_default();
    ensure!(line("a node does not vote").contains(&young), "{said}");
    ensure!(line("a node does not vote").contains("min_uptime"), "{said}");
    ensure!(line("a node cannot be reached").contains(&killed), "{said}");
    // Nobody holds it, and that is not all there is to say.
    let output = on(&servers, delayed, &["show", "job"])?;
    let said = text(&output);
    let line = |part: &str| said.lines().rfind(|line| line.contains(part)).unwrap_or_default();
    ensure!(said.contains("held by nobody") && said.contains("taken at 0 of 5 nodes"), "{said}");
    ensure!(line(&young).contains("min_uptime"), "{said}");
    ensure!(!line(&killed).trim().ends_with(&killed), "{said}");
    let script = "exec \"$LOCKKEEPER\" show job";
    let holds =
        ["run", "job", "--", "env", concat!("LOCKKEEPER=", env!("CARGO_BIN_EXE_lockkeeper"))];
    let output = on(&servers, delayed, &[&holds[..], &["sh", "-c", script]].concat())?;
    let said = text(&output);
    ensure!(output.status.success() && said.contains("taken at 4 of 5 nodes"), "{said}");
    Ok(())
}

fn warned(lab: &Lab) -> Result<()> {
    let servers = lab.redis().start_many(3)?;
    let calm = "min_uptime=0s";
    for (count, options, warning) in [
        (1, calm, "a majority of one is the one"),
        (2, calm, "a majority of two is both: if either fails, nobody gets a lock"),
        (3, "min_uptime=0s&timeout=400ms", "may be waited for for much of the ttl"),
    ] {
        let output =
            on(&servers[..count], options, &["run", "-n", "--ttl", "3s", "x", "--", "true"])?;
        let said = text(&output);
        ensure!(output.status.success() && said.contains(warning), "{said:?}");
        ensure!(said.lines().count() == 1, "{said:?}");
    }
    let quiet = on(&servers, calm, &["run", "-n", "--ttl", "3s", "x", "--", "true"])?;
    ensure!(quiet.status.success() && text(&quiet).is_empty(), "{}", text(&quiet));
    Ok(())
}
