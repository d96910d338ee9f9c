//! Locks that wander between processes, on every recipe of every server.

use crate::{lockkeeper, text};
use anyhow::{Context, Result, ensure};
use lockkeeper::Recipe;
use lockkeeper_lab::server::Server;
use lockkeeper_lab::trials::eventually_so as eventually;
use std::process::{Output, Stdio};

/// One recipe of a server.
struct On<'a> {
    server: &'a Server,
    url: String,
}

impl On<'_> {
    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = lockkeeper(self.server, words);
        command.env("LOCKKEEPER_STORE", &self.url);
        command
    }

    fn says(&self, words: &[&str], code: i32) -> Result<String> {
        let output = self.command(words).output()?;
        ensure!(
            ended_with(&output, code),
            "{}: {words:?} {:?} {}",
            self.url,
            output.status,
            text(&output)
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn ended_with(output: &Output, code: i32) -> bool {
    output.status.code() == Some(code)
}

/// The recipes that this server has, the default one first.
fn recipes(server: &Server) -> impl Iterator<Item = (&'static Recipe, On<'_>)> {
    let recipes = lockkeeper::recipes().iter().filter(|recipe| recipe.scheme == server.name());
    recipes.map(|recipe| {
        let url = match recipe.example.contains("recipe=") {
            true => format!("{}?recipe={}", server.url(), recipe.name),
            false => server.url(),
        };
        (recipe, On { server, url })
    })
}

pub(crate) fn wander(server: &Server) -> Result<()> {
    let mut tried = 0;
    for (recipe, on) in recipes(server) {
        tried += 1;
        match recipe.capability.portable {
            true => from_process_to_process(&on).with_context(|| recipe.example.to_owned())?,
            false => refused(&on).with_context(|| recipe.example.to_owned())?,
        }
    }
    ensure!(tried > 0, "no recipe of {}", server.name());
    Ok(())
}

/// Locked by one, kept by a second, taken over by a third that is killed, given back by a fourth.
fn from_process_to_process(on: &On<'_>) -> Result<()> {
    let ticket = on.says(&["lock", "-n", "--ttl", "60s", "wander"], 0)?;
    let ticket = ticket.trim();
    on.says(&["run", "-n", "wander", "--", "true"], 75)?;
    let kept = on.says(&["keep", "--for", "2m", ticket], 0)?;
    ensure!(kept.contains("is valid for 1m "), "{kept}");
    let held = on.server.folder().join("held");
    let _ = std::fs::remove_file(&held);
    let script = format!("touch {}; exec sleep 600", held.display());
    let mut third = on
        .command(&["run", "--ticket", ticket, "--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    eventually("the command runs", || Ok(held.exists()));
    third.kill()?;
    third.wait()?;
    on.says(&["run", "-n", "wander", "--", "true"], 75)?;
    on.says(&["unlock", ticket], 0)?;
    // From here on it is a ticket of the past.
    let next = on.says(&["lock", "-n", "--ttl", "60s", "wander"], 0)?;
    for words in
        [&["keep", ticket][..], &["unlock", ticket], &["run", "--ticket", ticket, "--", "true"]]
    {
        on.says(words, 79)?;
    }
    on.says(&["run", "--ticket", next.trim(), "--", "sh", "-c", "exit 7"], 7)?;
    on.says(&["run", "-n", "wander", "--", "true"], 0)?;
    Ok(())
}

/// Exactly so, and with stores where it would not be.
fn refused(on: &On<'_>) -> Result<()> {
    let (name, id) = (lockkeeper::Name::new("orders/42")?, lockkeeper::ClaimId::random()?);
    let ttl = std::time::Duration::from_secs(30);
    let ticket = lockkeeper::Ticket::new(name, lockkeeper::Mode::Exclusive, id, ttl).to_string();
    for words in [
        &["lock", "--ttl", "60s", "orders/42"][..],
        &["keep", &ticket],
        &["unlock", &ticket],
        &["run", "--ticket", &ticket, "--", "true"],
    ] {
        let output = on.command(words).output()?;
        let said = text(&output);
        ensure!(ended_with(&output, 64), "{words:?} {:?} {said}", output.status);
        let (refusal, stores) = said.split_once("or one of ").with_context(|| said.clone())?;
        ensure!(
            refusal.contains("has no tickets") && stores.contains("redis://127.0.0.1,"),
            "{said}"
        );
        ensure!(!stores.contains("memory:") && !stores.contains("setnx"), "{said}");
    }
    on.says(&["run", "-n", "orders/42", "--", "true"], 0)?;
    Ok(())
}

/// A server that is not there neither keeps nor loses.
pub(crate) fn server_away(server: &Server) -> Result<()> {
    let Some((_, on)) = recipes(server).find(|(recipe, _)| recipe.capability.portable) else {
        return Ok(());
    };
    let ticket = on.says(&["lock", "-n", "--ttl", "60s", "away"], 0)?;
    server.kill()?;
    for words in [&["keep", ticket.trim()][..], &["unlock", ticket.trim()]] {
        on.says(words, 69)?;
    }
    Ok(())
}

/// Taken over, and then taken away.
pub(crate) fn broken(server: &Server) -> Result<()> {
    let with = |recipe: &Recipe| recipe.capability.portable && recipe.capability.fencing;
    let Some((_, on)) = recipes(server).find(|(recipe, _)| with(recipe)) else {
        return Ok(());
    };
    let ticket = on.says(&["lock", "-n", "--ttl", "30s", "job"], 0)?;
    let held = on.server.folder().join("held");
    let script = format!("touch {}; exec sleep 600", held.display());
    let child =
        on.command(&["run", "--ticket", ticket.trim(), "--", "sh", "-c", &script]).spawn()?;
    eventually("the command runs", || Ok(held.exists()));
    let token = ticket.split(':').nth(4).context("a token")?;
    on.says(&["break", "job", "--token", token, "--reason", "on fire"], 0)?;
    let output = child.wait_with_output()?;
    ensure!(ended_with(&output, 79), "{:?} {}", output.status, text(&output));
    ensure!(text(&output).contains("on fire"), "{}", text(&output));
    on.says(&["unlock", ticket.trim()], 79)?;
    Ok(())
}
