//! A run as requested on the command line, and the command line that repeats it.

use super::trial::Trial;
use super::{HEALING, RunArguments, TOIL, TTL, breakable, recorder, url};
use crate::server::Kind;
use anyhow::{Context, Result};
use std::time::Duration;

impl RunArguments {
    /// The store's URL, with the recipe.
    pub(crate) fn store_url(&self, server: Option<&str>) -> Result<String> {
        let own = server.map(|server| {
            let session = self.server.and_then(breakable::session);
            match session {
                Some(session) => url::with_option(server, "session", session),
                None => Ok(server.to_owned()),
            }
        });
        let store = own.transpose()?.or_else(|| self.store.clone());
        let store = store.context("name a --store or a --server")?;
        match &self.recipe {
            Some(recipe) => url::with_recipe(&store, recipe),
            None => Ok(store),
        }
    }

    pub(crate) fn trial(&self) -> Trial {
        let out = self.out.clone().unwrap_or_else(|| {
            let name = format!("lockkeeper-lab-{}-{}", std::process::id(), recorder::now());
            std::env::temp_dir().join(name)
        });
        Trial {
            work: self.work,
            processes: self.processes,
            clients: self.clients,
            names: self.names,
            ttl: TTL,
            toil: TOIL,
            length: Duration::from_secs(self.seconds),
            healing: HEALING,
            faults: self.fault.clone(),
            seed: self.seed.unwrap_or_else(|| recorder::now() % 1_000_000),
            out,
        }
    }

    /// The command line that makes the same choices again. Leaves out a password.
    #[must_use]
    pub fn again(&self, seed: u64) -> String {
        let mut words = vec!["lab run".to_owned()];
        if let Some(store) = &self.store {
            words.extend(["--store".to_owned(), quoted(&url::shown(store))]);
        }
        words.extend(self.server.map(|kind| format!("--server {kind}")));
        if self.members > 1 {
            words.push(format!("--members {}", self.members));
        }
        if let Some(recipe) = &self.recipe {
            words.extend(["--recipe".to_owned(), quoted(recipe)]);
        }
        words.push(format!("--work {} --processes {}", self.work.word(), self.processes));
        words.push(format!("--clients {} --names {}", self.clients, self.names));
        words.push(format!("--seconds {}", self.seconds));
        if !self.fault.is_empty() {
            let faults: Vec<&str> = self.fault.iter().map(|fault| fault.word()).collect();
            words.push(format!("--fault {}", faults.join(",")));
        }
        words.push(format!("--seed {seed}"));
        words.join(" ")
    }
}

/// The kind of server that a word names.
///
/// # Errors
/// Names those that there are.
pub fn kind(word: &str) -> Result<Kind, String> {
    let known = || Kind::ALL.map(Kind::word).join(", ");
    let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
    kind.ok_or_else(|| format!("the lab can start {}", known()))
}

/// Quoted so that a shell reads it as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn a_run_can_be_asked_for_again() {
        let words = [
            "run",
            "--store",
            "sqlite:/tmp/x.db",
            "--recipe",
            "table",
            "--work",
            "rw",
            "--fault",
            "kill,lost-reply",
            "--seconds",
            "7",
            "--processes",
            "3",
            "--clients",
            "4",
            "--names",
            "1",
        ];
        let line = Command::parse_from(words).run.again(42);
        let again = Command::parse_from(line.split(' ').skip(1)).run;
        assert_eq!(again.seed, Some(42));
        assert_eq!(again.again(42), line);
        assert_eq!((again.processes, again.clients, again.names, again.seconds), (3, 4, 1, 7));
    }

    #[test]
    fn the_shell_gets_words_and_nobody_a_password() {
        let words = ["run", "--store", "redis://me:it's@h/0?a=b c"];
        let line = Command::parse_from(words).run.again(1);
        assert!(line.starts_with("lab run --store 'redis://me:***@h/0?a=b c' "), "{line}");
    }
}
