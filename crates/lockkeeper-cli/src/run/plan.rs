//! What a run will do, checked before anything is touched.

use crate::arguments::{OnLost, RunArguments};
use crate::exit::Failure;
use crate::text;
use lockkeeper::{Mode, Name, Owner};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Tells a nested run which owner it continues.
pub(crate) const OWNER_VARIABLE: &str = "LOCKKEEPER_OWNER";
/// Tells a nested run which store to use.
pub(crate) const STORE_VARIABLE: &str = "LOCKKEEPER_STORE";
const LONGEST_NOTE: usize = 200;
const SHORTEST_TTL: Duration = Duration::from_millis(100);
const USUAL_GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Plan {
    pub(crate) store: String,
    pub(crate) names: Vec<Name>,
    pub(crate) mode: Mode,
    /// `None` waits for ever, zero does not wait.
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) conflict_code: u8,
    /// The owner this run continues.
    pub(crate) owner: Option<Owner>,
    pub(crate) note: String,
    pub(crate) command: Vec<OsString>,
}

impl Plan {
    pub(crate) fn new(asked: &RunArguments) -> Result<Self, Failure> {
        refuse_option_as_command(&asked.command)?;
        let names = asked.names.split(',').map(Name::new).collect::<Result<Vec<_>, _>>()?;
        refuse_blanks_at_commas(&asked.names)?;
        if asked.ttl < SHORTEST_TTL {
            return Err(Failure::usage(format!(
                "a ttl below {} cannot be kept up by a command: leave it to its default of 30s",
                text::span(SHORTEST_TTL)
            )));
        }
        let mode = match asked.slots {
            Some(of) => Mode::Permit { of },
            None if asked.shared => Mode::Shared,
            None => Mode::Exclusive,
        };
        if names.len() > 1 && mode != Mode::Exclusive {
            return Err(Failure::usage(
                "several names are always taken exclusively: leave out --shared and --slots, or \
                 give one name",
            ));
        }
        Ok(Self {
            store: asked.store.url().to_owned(),
            names,
            mode,
            wait: if asked.no_wait { Some(Duration::ZERO) } else { asked.wait },
            ttl: asked.ttl,
            max_hold: asked.max_hold,
            min_hold: asked.min_hold,
            // A longer grace would make a properly renewed lock look as if it were about to expire.
            grace: asked.grace.unwrap_or(USUAL_GRACE).min(asked.ttl / 3),
            on_lost: asked.on_lost,
            conflict_code: asked.conflict_exit_code,
            owner: inherited_owner(std::env::var_os(OWNER_VARIABLE))?,
            note: text::shortened(&text::command_line(&asked.command), LONGEST_NOTE),
            command: asked.command.clone(),
        })
    }
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

/// The store's URL for the command, which may change its working directory or home before it uses
/// the URL. `opened` is the store's own name: for a file, its path.
pub(crate) fn store_from_anywhere(url: &str, opened: &str) -> String {
    match opened.strip_prefix("sqlite:") {
        Some(path) => format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F")),
        None => url.to_owned(),
    }
}

/// `run 'a, b'` would lock a name that begins with a blank, and exclude nobody.
fn refuse_blanks_at_commas(names: &str) -> Result<(), Failure> {
    let several = names.split(',').count() > 1;
    match names.split(',').find(|name| name.trim() != *name) {
        Some(name) if several => Err(Failure::usage(format!(
            "the name {name:?} begins or ends with a blank: write names with commas only"
        ))),
        _ => Ok(()),
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

fn inherited_owner(variable: Option<OsString>) -> Result<Option<Owner>, Failure> {
    let Some(id) = variable else { return Ok(None) };
    match Owner::new(&id.to_string_lossy()) {
        Ok(owner) if id.to_str().is_some() => Ok(Some(owner)),
        Ok(_) => Err(Failure::usage(format!("{OWNER_VARIABLE} is not UTF-8: unset it"))),
        Err(error) => Err(Failure::usage(format!("{OWNER_VARIABLE}: {error}: unset it"))),
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

    #[test]
    fn blanks_at_commas_are_refused() {
        assert!(refuse_blanks_at_commas("a, b").is_err());
        assert!(refuse_blanks_at_commas("a,b").is_ok());
        assert!(refuse_blanks_at_commas("a b").is_ok());
    }
    use crate::arguments::{Arguments, Verb};
    use clap::Parser;

    fn plan(words: &[&str]) -> Result<Plan, Failure> {
        let words = ["lockkeeper", "run"].iter().chain(words);
        match Arguments::try_parse_from(words).unwrap().verb {
            Verb::Run(asked) => Plan::new(&asked),
            other => unreachable!("{other:?}"),
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
        assert_eq!(plan(&["x", "-n", "true"]).ok().unwrap().wait, Some(Duration::ZERO));
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
        let note = plan(&["x", &long]).unwrap().note;
        assert!(note.len() <= 200 && note.ends_with('…'), "{note}");
    }

    #[test]
    fn an_owner_that_makes_no_sense_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        assert!(inherited_owner(None).unwrap().is_none());
        assert_eq!(inherited_owner(Some("run-1".into())).unwrap().unwrap().id(), "run-1");
        for bad in [OsString::new(), "a\nb".into(), OsString::from_vec(vec![0xff])] {
            assert_eq!(inherited_owner(Some(bad)).unwrap_err().code, 64);
        }
    }
}
