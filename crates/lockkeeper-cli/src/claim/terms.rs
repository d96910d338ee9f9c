//! What is asked for, checked before anything is touched.

use super::names;
use crate::arguments::ClaimArguments;
use crate::exit::Failure;
use crate::globals::Manner;
use lockkeeper::{Mode, Name, Owner};
use std::ffi::OsString;
use std::time::Duration;

/// Tells a nested run which owner it continues.
pub(crate) const OWNER_VARIABLE: &str = "LOCKKEEPER_OWNER";

pub(crate) struct Terms {
    pub(crate) names: Vec<Name>,
    pub(crate) mode: Mode,
    /// `None` waits for ever, zero does not wait.
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) conflict_code: u8,
    /// The owner of the run that we are within.
    pub(crate) owner: Option<Owner>,
    pub(crate) note: String,
    /// Whose name is shown, if not ours.
    pub(crate) identity: Option<String>,
    /// How much is said meanwhile.
    pub(crate) manner: Manner,
}

impl Terms {
    /// Those of the locks in `words`, each of which may be several, separated by commas.
    pub(crate) fn new<'a>(
        asked: &ClaimArguments,
        words: impl IntoIterator<Item = &'a str>,
        ttl: Duration,
    ) -> Result<Self, Failure> {
        let mut names = Vec::new();
        for word in words {
            names.extend(names::split(word)?);
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
            names,
            mode,
            wait: if asked.no_wait { Some(Duration::ZERO) } else { asked.wait },
            ttl,
            max_hold: None,
            min_hold: None,
            conflict_code: asked.conflict_exit_code,
            owner: inherited_owner(std::env::var_os(OWNER_VARIABLE))?,
            note: String::new(),
            identity: None,
            manner: asked.manner,
        })
    }

    /// What may not be meant as it was said.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.names.iter().filter_map(names::warning).collect()
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

    #[cfg(unix)]
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
