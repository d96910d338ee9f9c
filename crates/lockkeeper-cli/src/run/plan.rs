//! What a run is to do, checked before anything is touched.

use crate::arguments::{OnLost, RunArguments};
use crate::exit::Failure;
use crate::text;
use lockkeeper::{Mode, Name, Owner};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// By which a nested run knows the owner it continues.
pub(crate) const OWNER_VARIABLE: &str = "LOCKKEEPER_OWNER";
/// By which it finds the same store.
pub(crate) const STORE_VARIABLE: &str = "LOCKKEEPER_STORE";
const LONGEST_NOTE: usize = 200;
const USUAL_GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Plan {
    pub(crate) store: String,
    pub(crate) names: Vec<Name>,
    pub(crate) mode: Mode,
    /// `None` is for ever, zero is not at all.
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
            store: asked.store.store.clone(),
            names,
            mode,
            wait: if asked.no_wait { Some(Duration::ZERO) } else { asked.wait },
            ttl: asked.ttl,
            max_hold: asked.max_hold,
            min_hold: asked.min_hold,
            // Longer, and a lock that is renewed as it should be would seem about to run out.
            grace: asked.grace.unwrap_or(USUAL_GRACE).min(asked.ttl / 3),
            on_lost: asked.on_lost,
            conflict_code: asked.conflict_exit_code,
            owner: inherited_owner(std::env::var_os(OWNER_VARIABLE))?,
            note: text::shortened(&text::command_line(&asked.command), LONGEST_NOTE),
            command: asked.command.clone(),
        })
    }
}

/// The store's URL as the command needs it, which may go to another folder before it uses it.
pub(crate) fn store_from_anywhere(url: &str, here: &Path) -> String {
    match url.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() && !path.starts_with('/') => {
            let here = here.to_string_lossy().replace('%', "%25").replace('?', "%3F");
            format!("sqlite:{here}/{path}")
        }
        _ => url.to_owned(),
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
    match Owner::resume(&id.to_string_lossy()) {
        Ok(owner) if id.to_str().is_some() => Ok(Some(owner)),
        Ok(_) => Err(Failure::usage(format!("{OWNER_VARIABLE} is not UTF-8: unset it"))),
        Err(error) => Err(Failure::usage(format!("{OWNER_VARIABLE}: {error}: unset it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_relative_file_is_named_otherwise() {
        let here = Path::new("/srv/100%/what?");
        let anywhere = |url| store_from_anywhere(url, here);
        assert_eq!(anywhere("sqlite:a/b.db"), "sqlite:/srv/100%25/what%3F/a/b.db");
        for url in ["sqlite:", "sqlite:/x.db", "sqlite:///x.db", "redis://h/0"] {
            assert_eq!(anywhere(url), url);
        }
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
