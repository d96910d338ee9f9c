//! What a run will do, checked before anything is touched.

use crate::arguments::{OnLost, RunArguments};
use crate::claim::terms::Terms;
use crate::config::{CONFIG_VARIABLE, Config, Store};
use crate::exit::Failure;
use crate::globals::{Manner, STORE_VARIABLE};
use crate::text;
use crate::ticket::read;
use lockkeeper::Ticket;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

pub(crate) const LONGEST_NOTE: usize = 200;
pub(crate) const USUAL_TTL: Duration = Duration::from_secs(30);
const SHORTEST_TTL: Duration = Duration::from_millis(100);
pub(crate) const USUAL_GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Plan {
    pub(crate) store: Store,
    pub(crate) locks: Locks,
    /// The shortest one, of several.
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) manner: Manner,
    pub(crate) command: Vec<OsString>,
}

/// How the command comes by its locks.
pub(crate) enum Locks {
    /// They are waited for.
    Named(Box<Terms>),
    /// Somebody took them before.
    Ticketed(Vec<Ticket>),
}

impl Plan {
    /// `words` is the whole command line.
    pub(crate) fn new(
        asked: &RunArguments,
        words: impl Iterator<Item = OsString>,
    ) -> Result<Self, Failure> {
        let ticketed = !asked.ticket.is_empty() || asked.ticket_file.is_some();
        let command = match (&asked.shell_line, ticketed) {
            (Some(line), _) => by_shell(asked, line, ticketed)?,
            (None, true) => command_after_dashes(asked, words)?,
            (None, false) => asked.command.clone(),
        };
        refuse_option_as_command(&command)?;
        let config = asked.store.config()?;
        let locks = match ticketed {
            true => ticketed_locks(asked)?,
            false => named_locks(asked, &config, &command)?,
        };
        let ttl = match &locks {
            Locks::Named(terms) => Some(terms.ttl),
            Locks::Ticketed(tickets) => tickets.iter().map(|ticket| ticket.ttl).min(),
        };
        let ttl = ttl.unwrap_or(USUAL_TTL);
        refuse_short_ttl(ttl)?;
        let store = asked.store.find(&config)?;
        Ok(Self {
            store,
            locks,
            ttl,
            // A longer grace would make a properly renewed lock look as if it were about to expire.
            grace: asked.grace.unwrap_or(USUAL_GRACE).min(ttl / 3),
            on_lost: asked.on_lost,
            manner: asked.claim.manner,
            command,
        })
    }
}

pub(crate) fn refuse_short_ttl(ttl: Duration) -> Result<(), Failure> {
    match ttl < SHORTEST_TTL {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "a ttl below {} cannot be kept up by a command: leave it to its default of 30s",
            text::span(SHORTEST_TTL)
        ))),
    }
}

fn named_locks(
    asked: &RunArguments,
    config: &Config,
    command: &[OsString],
) -> Result<Locks, Failure> {
    let names = asked.names.as_ref().and_then(|names| names.to_str());
    let names = names.ok_or_else(|| Failure::usage("a name is text in UTF-8"))?;
    let ttl = asked.ttl.unwrap_or(USUAL_TTL);
    let note = match &asked.note {
        Some(note) => note.clone(),
        None if asked.no_command || !config.shows_command() => String::new(),
        None => text::shortened(&text::command_line(command), LONGEST_NOTE),
    };
    Ok(Locks::Named(Box::new(Terms {
        max_hold: asked.max_hold,
        min_hold: asked.min_hold,
        note,
        ..Terms::new(&asked.claim, [names], ttl)?
    })))
}

fn ticketed_locks(asked: &RunArguments) -> Result<Locks, Failure> {
    let tickets = read::from(&asked.ticket, asked.ticket_file.as_deref())?;
    Ok(Locks::Ticketed(match asked.ttl {
        Some(ttl) => tickets.into_iter().map(|ticket| ticket.with_ttl(ttl)).collect(),
        None => tickets,
    }))
}

/// `-c`, behind which nothing is left to run.
fn by_shell(
    asked: &RunArguments,
    line: &OsString,
    ticketed: bool,
) -> Result<Vec<OsString>, Failure> {
    let stray = match ticketed {
        true => asked.names.iter().chain(&asked.command).next(),
        false => asked.command.first(),
    };
    if let Some(word) = stray {
        return Err(Failure::usage(format!(
            "-c runs one line, and {word:?} is not part of it: put quotes around the whole line"
        )));
    }
    Ok(vec!["sh".into(), "-c".into(), line.clone()])
}

/// With tickets there is no name, so that the first word of the command stands in its place. Without
/// the dashes, options of the command might have been taken for ours.
fn command_after_dashes(
    asked: &RunArguments,
    words: impl Iterator<Item = OsString>,
) -> Result<Vec<OsString>, Failure> {
    let command: Vec<_> = asked.names.iter().chain(&asked.command).cloned().collect();
    let after_dashes: Vec<_> = words.skip_while(|word| word != "--").skip(1).collect();
    if command.is_empty() || command != after_dashes {
        return Err(Failure::usage(
            "with a ticket there is no name, and the command stands behind two dashes: `lockkeeper \
             run --ticket TICKET -- CMD`",
        ));
    }
    Ok(command)
}

impl Plan {
    /// What is wrong with the command, although it can be run.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        let program = Path::new(self.command.first()?).file_name()?;
        // It would seem to end at once; with `--wait`, no signal and no loss would reach it.
        (program == "setsid").then_some(
            "what setsid starts goes on when the lock is given back and cannot be stopped when it \
             is lost: leave setsid out, the command has a process group of its own",
        )
    }
}

/// The variables by which a run within this one finds the store. `opened` is the store's own name.
///
/// A store that came by its name is passed on by its name: so the command does not see its password.
pub(crate) fn store_variables(
    store: &Store,
    opened: &str,
) -> Vec<(&'static str, Option<OsString>)> {
    match &store.named {
        Some((name, path)) => {
            vec![(STORE_VARIABLE, Some(name.into())), (CONFIG_VARIABLE, Some(path.into()))]
        }
        None => vec![(STORE_VARIABLE, Some(store_from_anywhere(&store.url, opened).into()))],
    }
}

/// The store's URL for the command, which may change its working directory or home before it uses
/// the URL. `opened` is the store's own name: for a file, its path.
fn store_from_anywhere(url: &str, opened: &str) -> String {
    match opened.strip_prefix("sqlite:") {
        Some(path) => format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F")),
        None => url.to_owned(),
    }
}

/// `run NAME --nowait cmd` would look for a program called `--nowait`.
fn refuse_option_as_command(command: &[OsString]) -> Result<(), Failure> {
    match command.first().and_then(|word| word.to_str()) {
        Some(word) if word.starts_with('-') => Err(Failure::usage(format!(
            "{word:?} stands where the command should: see `lockkeeper run --help` for the options there are"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_passed_on_by_where_it_is() {
        let opened = "sqlite:/srv/100%/what?/b.db";
        assert_eq!(store_from_anywhere("sqlite:b.db", opened), "sqlite:/srv/100%25/what%3F/b.db");
        let secret = "redis://:password@host/0";
        assert_eq!(store_from_anywhere(secret, "redis://:***@host/0"), secret);
    }

    use crate::arguments::{Arguments, Verb};
    use clap::Parser;

    fn plan(words: &[&str]) -> Result<Plan, Failure> {
        let words: Vec<_> = ["lockkeeper", "run"].iter().chain(words).map(OsString::from).collect();
        match Arguments::try_parse_from(&words).unwrap().verb {
            Verb::Run(asked) => Plan::new(&asked, words.into_iter()),
            other => unreachable!("{other:?}"),
        }
    }

    fn terms(words: &[&str]) -> Terms {
        match plan(words).ok().unwrap().locks {
            Locks::Named(terms) => *terms,
            Locks::Ticketed(_) => unreachable!("{words:?}"),
        }
    }

    #[test]
    fn the_grace_fits_between_two_renewals() {
        let grace = |words: &[&str]| plan(words).unwrap().grace;
        assert_eq!(grace(&["x", "true"]), Duration::from_secs(5));
        assert_eq!(grace(&["--ttl", "6s", "x", "true"]), Duration::from_secs(2));
        assert_eq!(grace(&["--grace", "1h", "x", "true"]), Duration::from_secs(10));
        assert_eq!(grace(&["--grace", "0", "x", "true"]), Duration::ZERO);
    }

    #[test]
    fn an_option_in_place_of_the_command_is_explained() {
        assert_eq!(terms(&["x", "-n", "true"]).wait, Some(Duration::ZERO));
        let failure = plan(&["x", "--bogus", "true"]).err().unwrap();
        assert_eq!(failure.code, 64);
        assert!(failure.message.contains("--help"), "{}", failure.message);
    }

    #[test]
    fn a_command_that_goes_out_of_reach_is_warned_of() {
        for (words, warned) in [
            (&["x", "setsid", "sleep", "1"][..], true),
            (&["x", "/usr/bin/setsid", "--wait", "sleep", "1"], true),
            (&["x", "echo", "setsid"], false),
            (&["x", "setsid/echo"], false),
        ] {
            assert_eq!(plan(words).unwrap().warning().is_some(), warned, "{words:?}");
        }
    }

    #[test]
    fn a_long_command_makes_a_short_note() {
        let long = "ä".repeat(500);
        let note = terms(&["x", &long]).note;
        assert!(note.len() <= 200 && note.ends_with('…'), "{note}");
    }

    #[test]
    fn what_others_see_can_be_chosen() {
        assert_eq!(terms(&["x", "sh", "-c", "a b"]).note, r#"sh -c "a b""#);
        assert_eq!(terms(&["--note", "nightly run", "x", "true"]).note, "nightly run");
        assert_eq!(terms(&["--no-command", "x", "login", "--password", "hunter2"]).note, "");
    }

    #[test]
    fn a_line_is_run_by_the_shell() {
        for words in [&["x", "-c", "a | b"][..], &["-c", "a | b", "x"], &["x", "--command=a | b"]] {
            assert_eq!(plan(words).ok().unwrap().command, ["sh", "-c", "a | b"], "{words:?}");
        }
        assert_eq!(terms(&["x", "-c", "a | b"]).note, r#"sh -c "a | b""#);
        let failure = plan(&["x", "-c", "echo", "a"]).err().unwrap();
        assert!(failure.code == 64 && failure.message.contains("quotes"), "{failure:?}");
        let own = plan(&["x", "sh", "-c", "true"]).ok().unwrap().command;
        assert_eq!(own, ["sh", "-c", "true"], "the command's own -c");
    }

    #[test]
    fn the_spellings_of_flock_are_known() {
        for words in [&["--nb"][..], &["--nonblock"], &["-x", "-n"], &["-e", "-n"]] {
            let words = [words, &["x", "true"]].concat();
            assert_eq!(terms(&words).wait, Some(Duration::ZERO), "{words:?}");
        }
        let wait = terms(&["--timeout", "10s", "--exclusive", "x", "true"]).wait;
        assert_eq!(wait, Some(Duration::from_secs(10)));
    }

    #[test]
    fn behind_a_ticket_comes_the_command() {
        let name = lockkeeper::Name::new("orders/42").unwrap();
        let id = lockkeeper::ClaimId::random().unwrap();
        let ticket = Ticket::new(name, lockkeeper::Mode::Exclusive, id, Duration::from_secs(30));
        let ticket = ticket.to_string();
        let with = |words: &[&str]| plan(&[&["--ticket", &ticket], words].concat());
        let found = with(&["--", "sh", "-n", "--", "-c", "true"]).ok().unwrap();
        assert_eq!(found.command, ["sh", "-n", "--", "-c", "true"]);
        assert_eq!((found.ttl, found.grace), (Duration::from_secs(30), Duration::from_secs(5)));
        let found = with(&["--ttl", "6s", "--", "true"]).ok().unwrap();
        assert_eq!((found.ttl, found.grace), (Duration::from_secs(6), Duration::from_secs(2)));
        for wrong in [&["true"][..], &["--"], &[], &["orders/42", "--", "true"], &["sh", "--", "x"]]
        {
            let failure = with(wrong).err().unwrap();
            assert!(failure.message.contains("-- CMD"), "{wrong:?}: {}", failure.message);
        }
    }
}
