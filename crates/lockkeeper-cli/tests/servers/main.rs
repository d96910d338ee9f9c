//! The command line on stores with a server, which is killed under it.

mod exporter;
mod memcached;
mod redlock;
mod tickets;
mod verbs;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_lab::proxy::{Direction, Flow, Proxy};
use lockkeeper_lab::server::{Kind, Lab, Server, missing};
use lockkeeper_lab::stores::{STORES, Store};
use lockkeeper_lab::trials::eventually_so as eventually;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

type Case = (&'static str, fn(&Server) -> Result<()>);

const CASES: &[Case] = &[
    ("a_run_hands_over_to_the_next", hands_over),
    ("a_command_is_stopped_when_its_server_is_gone", server_gone),
    ("a_lock_can_be_broken", broken),
    ("a_lock_that_was_removed_is_said_at_the_end", removed),
    ("the_keys_of_a_lock_are_shown", keys_shown),
    ("a_server_that_is_not_there_is_said", not_there),
    ("a_run_within_a_run_enters_again_or_is_refused", within),
    ("an_option_that_is_none_is_said", wrong_option),
    ("a_release_that_came_through_in_the_end_is_not_complained_of", released_late),
    ("a_ticket_wanders_between_processes_or_is_refused", tickets::wander),
    ("a_ticket_of_a_server_that_is_away_is_neither_kept_nor_lost", tickets::server_away),
    ("a_lock_that_was_taken_over_can_be_broken", tickets::broken),
    ("ids_are_those_that_nobody_else_gets", ids),
    ("what_is_in_the_store_is_exported_also_while_it_is_away", exporter::exported),
];

fn main() -> Result<()> {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(4);
    let lab = Arc::new(Lab::open()?);
    let mut trials = Vec::new();
    for Store { kind, .. } in STORES {
        for (name, case) in CASES.iter().chain(verbs::CASES) {
            let lab = lab.clone();
            let trial = Trial::test(format!("{}::{name}", kind.word()), move || {
                let server =
                    lab.start(*kind).map_err(|error| Failed::from(format!("{error:?}")))?;
                case(&server).map_err(|error| Failed::from(format!("{error:?}")))
            });
            trials.push(match missing(&[*kind]) {
                Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
                None => trial,
            });
        }
    }
    let redis = lab.clone();
    let trial = Trial::test("what_the_library_warns_of_is_printed", move || {
        warned(&redis).map_err(|error| Failed::from(format!("{error:?}")))
    });
    trials.push(match missing(&[Kind::Redis]) {
        Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
        None => trial,
    });
    let redis = lab.clone();
    let trial = Trial::test("a_redis_that_is_not_well_is_found_out", move || {
        verbs::sick_redis(&redis).map_err(|error| Failed::from(format!("{error:?}")))
    });
    trials.push(match missing(&[Kind::Redis]) {
        Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
        None => trial,
    });
    trials.extend(memcached::trials(&lab));
    trials.extend(redlock::trials(&lab));
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(lab);
    conclusion.exit();
}

fn lockkeeper(server: &Server, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(words).env("LOCKKEEPER_STORE", server.url());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command under `name` that writes to `file` when it begins, and then stays.
fn hold(server: &Server, name: &str, file: &Path, options: &[&str]) -> Result<Child> {
    let script = format!("echo $$ > {}; exec sleep 600", file.display());
    let words = [&["run"], options, &[name, "--", "sh", "-c", &script]].concat();
    let child = lockkeeper(server, &words).spawn()?;
    eventually("the command runs", || Ok(file.exists()));
    Ok(child)
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A user that may not ask for the settings, and a recipe that is there to be seen failing.
fn warned(lab: &Lab) -> Result<()> {
    let server = lab.start(Kind::Redis)?;
    let user = ["ACL", "SETUSER", "someone", "on", ">hunter2", "~*", "&*", "+@all", "-config"];
    server.redis()?.ask(&user)?;
    let address = server.address();
    for (url, warning) in [
        (format!("redis://someone:hunter2@{address}"), "cannot see whether Redis may evict locks"),
        (format!("redis://{address}?recipe=getset"), "the recipe getset is UNSAFE"),
    ] {
        let mut run = lockkeeper(&server, &["run", "-n", "warned", "--", "true"]);
        let output = run.env("LOCKKEEPER_STORE", url).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let begins = said.starts_with(&format!("lockkeeper: warning: {warning}"));
        ensure!(output.status.success() && begins && said.lines().count() == 1, "{said:?}");
        ensure!(!said.contains("hunter2"), "it tells the password: {said:?}");
    }
    let quiet = lockkeeper(&server, &["run", "-n", "quiet", "--", "true"]).output()?;
    ensure!(quiet.status.success() && text(&quiet).is_empty(), "{}", text(&quiet));
    Ok(())
}

fn hands_over(server: &Server) -> Result<()> {
    let file = server.folder().join("done");
    let script = format!("sleep 2; touch {}", file.display());
    let first = lockkeeper(server, &["run", "job", "--", "sh", "-c", &script]).spawn()?;
    eventually("it is held", || {
        let shown = lockkeeper(server, &["show", "job"]).output()?;
        Ok(shown.status.success())
    });
    let script = format!("test -e {} && echo done", file.display());
    let second = lockkeeper(server, &["run", "job", "--", "sh", "-c", &script]).output()?;
    let first = first.wait_with_output()?;
    ensure!(first.status.success(), "{}", text(&first));
    ensure!(second.status.success(), "{}", text(&second));
    ensure!(String::from_utf8_lossy(&second.stdout) == "done\n", "{}", text(&second));
    Ok(())
}

fn server_gone(server: &Server) -> Result<()> {
    let file = server.folder().join("held");
    let child = hold(server, "job", &file, &["--ttl", "3s"])?;
    server.kill()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(79), "{:?} {}", output.status, text(&output));
    let pid = std::fs::read_to_string(&file)?;
    ensure!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "the command still runs");
    Ok(())
}

fn broken(server: &Server) -> Result<()> {
    let child = hold(server, "job", &server.folder().join("held"), &[])?;
    let shown = lockkeeper(server, &["show", "job", "--json"]).output()?;
    let view: serde_json::Value = serde_json::from_slice(&shown.stdout)?;
    let token = view["holders"][0]["token"].as_u64().context("a token")?.to_string();
    let words = ["break", "job", "--token", &token, "--reason", "on fire"];
    let output = lockkeeper(server, &words).output()?;
    ensure!(output.status.success(), "{}", text(&output));
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(79), "{:?} {}", output.status, text(&output));
    ensure!(text(&output).contains("on fire"), "{}", text(&output));
    Ok(())
}

/// Somebody deletes what the lock is made of, and the command ends before that can be noticed.
fn removed(server: &Server) -> Result<()> {
    // Of those with a server, this one can be told to by a program that is there with it.
    if server.name() != "redis" {
        return Ok(());
    }
    let port = server.port().to_string();
    let delete = ["redis-cli", "-p", &port, "del", "lockkeeper:{job}"];
    for (options, code) in [(&[][..], 79), (&["--on-lost", "warn"], 0)] {
        let words = [&["run"], options, &["job", "--"], &delete].concat();
        let output = lockkeeper(server, &words).output()?;
        ensure!(output.status.code() == Some(code), "{:?} {}", output.status, text(&output));
        ensure!(text(&output).contains("was lost"), "{}", text(&output));
    }
    Ok(())
}

/// What one would ask the server's own tools for.
fn keys_shown(server: &Server) -> Result<()> {
    let output = lockkeeper(server, &["show", "job", "--keys"]).output()?;
    ensure!(output.status.success(), "{:?} {}", output.status, text(&output));
    let first = text(&output).lines().next().unwrap_or_default().to_owned();
    let store = STORES.iter().find(|store| store.kind.word() == server.name()).context("a row")?;
    ensure!(first.starts_with(store.key), "{first:?}");
    Ok(())
}

fn not_there(server: &Server) -> Result<()> {
    server.kill()?;
    let output = lockkeeper(server, &["run", "job", "--", "true"]).output()?;
    ensure!(output.status.code() == Some(69), "{:?} {}", output.status, text(&output));
    ensure!(text(&output).contains("127.0.0.1"), "{}", text(&output));
    Ok(())
}

/// Where the store lets no owner in twice, it does not wait for itself.
fn within(server: &Server) -> Result<()> {
    let inner = [env!("CARGO_BIN_EXE_lockkeeper"), "run", "-w", "10s", "other,job", "--"];
    let words = [&["run", "job", "--"], &inner[..], &["echo", "inside"]].concat();
    let output = lockkeeper(server, &words).output()?;
    let default = lockkeeper::recipes().iter().find(|recipe| recipe.scheme == server.name());
    if default.context("a recipe")?.capability.reentrant {
        ensure!(output.stdout == b"inside\n", "{:?} {}", output.status, text(&output));
    } else {
        ensure!(output.status.code() == Some(64), "{:?} {}", output.status, text(&output));
        ensure!(text(&output).contains("re-entrant"), "{}", text(&output));
    }
    Ok(())
}

fn wrong_option(server: &Server) -> Result<()> {
    let url = format!("{}?colour=red", server.url());
    let output = lockkeeper(server, &["ls", "--store", &url]).output()?;
    ensure!(output.status.code() == Some(64), "{:?} {}", output.status, text(&output));
    ensure!(text(&output).contains("colour"), "{}", text(&output));
    Ok(())
}

fn ids(server: &Server) -> Result<()> {
    let default = lockkeeper::recipes().iter().find(|recipe| recipe.scheme == server.name());
    if !default.context("a recipe")?.capability.sequences {
        return no_ids(server, server.url());
    }
    let print = |words: &[&str]| -> Result<Vec<String>> {
        let output = lockkeeper(server, &[&["id"], words].concat()).output()?;
        ensure!(output.status.success(), "{words:?}: {:?} {}", output.status, text(&output));
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    };
    ensure!(print(&["sequence", "--key", "invoices", "-n", "2"])? == ["1", "2"]);
    ensure!(print(&["next", "invoices"])? == ["3"]);
    for (kind, strict) in
        [("sequence", true), ("segment", false), ("snowflake", false), ("dated", true)]
    {
        let ids = [print(&[kind, "-n", "100"])?, print(&[kind, "-n", "100"])?].concat();
        let ids: Vec<u64> = ids.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
        ensure!(!strict || ids.is_sorted_by(|one, two| one < two), "{kind}: {ids:?}");
        let different: BTreeSet<_> = ids.iter().collect();
        ensure!(different.len() == 200, "{kind}: {ids:?}");
    }
    let workers = print(&["workers", "--json"])?.concat();
    let workers: serde_json::Value = serde_json::from_str(&workers)?;
    let workers = workers.as_array().context("an array")?;
    // A store whose clock has seconds alone may have given another number to the second process.
    ensure!(!workers.is_empty() && workers.len() <= 2, "{workers:?}");
    ensure!(workers.iter().all(|worker| worker["state"] == "free"), "{workers:?}");
    ensure!(print(&["keys"])?.len() == 6, "{:?}", print(&["keys"])?);
    let other = lockkeeper(server, &["id", "segment", "--key", "invoices"]).output()?;
    ensure!(other.status.code() == Some(64), "{:?} {}", other.status, text(&other));
    // A recipe without a count says which ones have one.
    if server.name() == "redis" {
        no_ids(server, format!("{}?recipe=reentrant", server.url()))?;
    }
    server.kill()?;
    let output = lockkeeper(server, &["id", "next", "invoices"]).output()?;
    ensure!(output.status.code() == Some(69), "{:?} {}", output.status, text(&output));
    Ok(())
}

fn no_ids(server: &Server, url: impl AsRef<str>) -> Result<()> {
    let words = ["id", "sequence", "--store", url.as_ref()];
    let output = lockkeeper(server, &words).output()?;
    ensure!(output.status.code() == Some(64), "{:?} {}", output.status, text(&output));
    ensure!(text(&output).contains("has no count of numbers"), "{}", text(&output));
    Ok(())
}

/// The first release is carried out, but its answer lost; the second finds nothing more to do.
fn released_late(server: &Server) -> Result<()> {
    // So that Redis knows the script: else the answer that is lost is that it does not.
    ensure!(lockkeeper(server, &["run", "job", "true"]).status()?.success());
    let proxy = Proxy::start(server.address().parse()?, 7)?;
    let url = server.url().replace(&server.address(), &proxy.address().to_string());
    let folder = server.folder();
    let (held, end) = (folder.join("held"), folder.join("end"));
    let (held_shown, end_shown) = (held.display(), end.display());
    let script =
        format!("touch {held_shown}; while ! test -e {end_shown}; do sleep 0.02; done; exit 5");
    let words = ["run", "--ttl", "60s", "job", "--", "sh", "-c", &script];
    let child = lockkeeper(server, &words).env("LOCKKEEPER_STORE", url).spawn()?;
    eventually("the command runs", || Ok(held.exists()));
    proxy.set(Direction::ToClient, Flow::Swallow);
    let connections = proxy.counters().connections;
    std::fs::write(&end, "")?;
    eventually("the store has the lock back", || {
        Ok(lockkeeper(server, &["show", "job"]).output()?.status.code() == Some(1))
    });
    if server.name() == "redis" {
        // Not answered in time, so it is tried again on another connection. The other stores
        // notice by the reset below.
        eventually("it is tried again", || Ok(proxy.counters().connections > connections));
    }
    proxy.heal();
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(5), "{:?} {}", output.status, text(&output));
    ensure!(text(&output).is_empty(), "{}", text(&output));
    Ok(())
}
