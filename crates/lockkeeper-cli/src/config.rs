//! The configuration file: stores by name, and what others may see.

mod file;
mod secret;

pub(crate) use file::find;

use crate::exit::Failure;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Names the file where no option does.
pub(crate) const CONFIG_VARIABLE: &str = "LOCKKEEPER_CONFIG";

pub(crate) const HELP: &str = "\
Configuration file: --config, or LOCKKEEPER_CONFIG, or else the first that is there of
$XDG_CONFIG_HOME/lockkeeper/config.toml (~/.config/lockkeeper/config.toml) and
/etc/lockkeeper/config.toml. It belongs to you or to root, and nobody else may write to it.

  default = \"prod\"             the store where none is given: a name or a URL
  show_command = false         as --no-command for every run

  [stores.prod]                then `--store prod`, or LOCKKEEPER_STORE=prod
  url = \"redis://cache.example.org\"
  password_file = \"/etc/lockkeeper/prod.password\"

  [stores.test]
  url = \"postgres://locks@db.example.org/locks\"
  password_command = [\"pass\", \"show\", \"locks\"]";

/// What the file says; without a file, nothing.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Where it is, from the root.
    path: Option<PathBuf>,
    said: Said,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    default: Option<String>,
    show_command: Option<bool>,
    #[serde(default)]
    stores: BTreeMap<String, NamedStore>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedStore {
    url: String,
    password_file: Option<PathBuf>,
    password_command: Option<Vec<String>>,
}

/// Without the URL, which can contain a password.
impl std::fmt::Debug for NamedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedStore").finish_non_exhaustive()
    }
}

/// A store that was chosen.
pub(crate) struct Store {
    /// With its password.
    pub(crate) url: String,
    /// How a process that we start finds the same store without being told the password: by the name, and
    /// the file that the name is in.
    pub(crate) named: Option<(String, PathBuf)>,
}

impl Config {
    /// The store where none is given.
    pub(crate) fn default_store(&self) -> Option<&str> {
        self.said.default.as_deref()
    }

    /// Whether others may see the command and its arguments.
    pub(crate) fn shows_command(&self) -> bool {
        self.said.show_command.unwrap_or(true)
    }

    /// The store that `word` means: a URL, or a name in the file.
    pub(crate) fn store(&self, word: &str) -> Result<Store, Failure> {
        if is_url(word) {
            return Ok(Store { url: word.to_owned(), named: None });
        }
        let (Some(path), Some(named)) = (&self.path, self.said.stores.get(word)) else {
            return Err(self.unknown(word));
        };
        let url = named.with_password().map_err(|failure| {
            let message = format!("the store {word:?} of {}: {}", path.display(), failure.message);
            Failure { message, ..failure }
        })?;
        Ok(Store { url, named: Some((word.to_owned(), path.clone())) })
    }

    fn unknown(&self, word: &str) -> Failure {
        let names: Vec<_> = self.said.stores.keys().map(|name| format!("{name:?}")).collect();
        Failure::usage(match &self.path {
            None => format!(
                "{word:?} is no URL, and no name either, because there is no configuration file: write a \
                 URL such as redis://127.0.0.1, or see `lockkeeper --help` for the file"
            ),
            Some(path) if names.is_empty() => {
                format!("{word:?} is no URL, and {} names no stores", path.display())
            }
            Some(path) => format!(
                "there is no store {word:?} in {}: it has {}",
                path.display(),
                names.join(", ")
            ),
        })
    }
}

/// Whether it is the URL of a store; nothing at all is left to the library to refuse.
pub(crate) fn is_url(word: &str) -> bool {
    word.is_empty() || word.contains(':')
}

impl NamedStore {
    fn with_password(&self) -> Result<String, Failure> {
        let password = match (&self.password_file, &self.password_command) {
            (None, None) => return Ok(self.url.clone()),
            (Some(file), None) => secret::from_file(file)?,
            (None, Some(command)) => secret::from_command(command)?,
            (Some(_), Some(_)) => {
                return Err(Failure::usage("give password_file or password_command, not both"));
            }
        };
        secret::put_into(&self.url, &password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config { path: Some("/etc/x.toml".into()), said: toml::from_str(text).unwrap() }
    }

    #[test]
    fn a_name_is_found_and_an_unknown_one_lists_the_others() {
        let config = config(
            "default = \"b\"\n[stores.a]\nurl = \"sqlite:a\"\n[stores.b]\nurl = \"sqlite:b\"",
        );
        assert_eq!(config.store("a").ok().unwrap().url, "sqlite:a");
        assert_eq!(config.store("a").ok().unwrap().named.unwrap().0, "a");
        assert_eq!(config.default_store(), Some("b"));
        assert!(config.store("redis://host").ok().unwrap().named.is_none());
        let failure = config.store("c").err().unwrap();
        assert_eq!(failure.code, 64);
        assert!(failure.message.contains("\"a\", \"b\""), "{}", failure.message);
        let failure = Config::default().store("c").err().unwrap();
        assert!(failure.message.contains("no configuration file"), "{}", failure.message);
    }

    #[test]
    fn what_is_shown_of_a_configuration_has_no_url() {
        let config = config("[stores.a]\nurl = \"redis://:hunter2@host\"");
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn the_example_is_a_configuration() {
        let example: Vec<_> = HELP.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        let text: Vec<_> = example.iter().map(|line| line.split("  ").next().unwrap()).collect();
        let said: Said = toml::from_str(&text.join("\n")).unwrap();
        assert_eq!(said.stores.len(), 2);
        assert_eq!((said.default.as_deref(), said.show_command), (Some("prod"), Some(false)));
    }
}
