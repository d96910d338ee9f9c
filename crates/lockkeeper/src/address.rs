//! The parts of a store's URL.

use crate::backend::support::options::config;
use crate::backend::support::percent;
use crate::duration::parse_duration;
use crate::error::{Error, ErrorKind, Result};
use crate::similar::did_you_mean;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// `scheme:[//[user[:password]@]hosts]path[?key=value&…]`, taken apart.
///
/// Not the `url` crate: several hosts in one URL, which some stores need, are no URL to it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) scheme: String,
    pub(crate) authority: Option<String>,
    pub(crate) path: String,
    pub(crate) options: BTreeMap<String, String>,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let bad = |why: &str| {
            // The text itself stays out of the message: it may hold a password.
            let example = "a store is named by a URL such as sqlite:locks.db or memory:";
            Err(Error::new(ErrorKind::Config, format!("{why}: {example}")))
        };
        let Some((scheme, rest)) = url.split_once(':') else {
            return bad("the store's URL has no scheme");
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(plain) {
            return bad("the store's URL has no valid scheme");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            None => (None, rest),
            Some(rest) => {
                let end = rest.find('/').unwrap_or(rest.len());
                (Some(rest[..end].to_owned()), &rest[end..])
            }
        };
        // Else a part of the password would be taken for a host or an option, and be shown.
        if authority.as_ref().is_some_and(|it| !it.is_empty())
            && (path.contains('@') || query.contains('@'))
        {
            return Err(Error::new(
                ErrorKind::Config,
                "there is an @ behind the first / or ? of the store's URL: in a user name or a \
                 password write / as %2F, ? as %3F and @ as %40; behind the host write @ as %40",
            ));
        }
        let mut options = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if options.insert(decode(key)?, decode(value)?).is_some() {
                return bad(&format!("the option {key:?} is given twice"));
            }
        }
        let scheme = scheme.to_ascii_lowercase();
        Ok(Self { scheme, authority, path: decode(path)?, options })
    }

    /// Refuses options that are in none of the lists.
    pub(crate) fn only_options(&self, known: &[&[&str]]) -> Result<()> {
        let known = known.concat();
        let unknown = self.options.keys().find(|key| !known.contains(&key.as_str()));
        let Some(unknown) = unknown else { return Ok(()) };
        let meant = did_you_mean(unknown, known.iter().copied());
        let known = match &known[..] {
            [] => "it takes none".to_owned(),
            known => format!("{meant}it takes {}", known.join(", ")),
        };
        let scheme = &self.scheme;
        Err(Error::new(ErrorKind::Config, format!("{scheme}: has no option {unknown:?}: {known}")))
    }
}

// Not bound to features: a store that is compiled out must not make this list longer.
#[allow(dead_code, reason = "only stores on a network have these")]
impl Address {
    /// The user and the password.
    pub(crate) fn credentials(&self) -> Result<(Option<String>, Option<String>)> {
        let authority = self.authority.as_deref().unwrap_or_default();
        let Some((credentials, _)) = authority.rsplit_once('@') else { return Ok((None, None)) };
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(decode(password)?)),
            None => (credentials, None),
        };
        Ok((Some(decode(user)?).filter(|user| !user.is_empty()), password))
    }

    /// The hosts and their ports, in the order given.
    pub(crate) fn hosts(&self, default_port: u16) -> Result<Vec<(String, u16)>> {
        let bad = |host: &str| {
            let scheme = &self.scheme;
            Error::new(
                ErrorKind::Config,
                format!("{host:?} is no host and port: write {scheme}://host:{default_port}"),
            )
        };
        let authority = self.authority.as_deref().unwrap_or_default();
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        let parse = |text: &str| {
            let (host, port) = match text.strip_prefix('[') {
                Some(rest) => {
                    let (host, rest) = rest.split_once(']').ok_or_else(|| bad(text))?;
                    let port = rest.strip_prefix(':');
                    (host, port.or((!rest.is_empty()).then_some(rest)))
                }
                None => match text.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (text, None),
                },
            };
            let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| bad(text)))?;
            match host {
                "" => Err(bad(text)),
                host => Ok((decode(host)?, port)),
            }
        };
        hosts.split(',').map(parse).collect()
    }

    /// An option that is `true` or `false`.
    pub(crate) fn flag(&self, option: &str) -> Result<bool> {
        match self.options.get(option).map(String::as_str) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => {
                Err(Error::new(ErrorKind::Config, format!("the option {option} is true or false")))
            }
        }
    }

    /// Refuses options that say how to encrypt where nothing is encrypted.
    pub(crate) fn no_certificates_without(&self, tls: bool) -> Result<()> {
        let options = ["ca", "cert", "key"];
        match options.iter().find(|option| self.options.contains_key(**option)) {
            Some(option) if !tls => Err(Error::new(
                ErrorKind::Config,
                format!("the option {option} does nothing without tls=true: add that, or leave it"),
            )),
            _ => Ok(()),
        }
    }

    /// An option that is a time: `500ms`, `2s`, `1.5h`.
    pub(crate) fn span(&self, option: &str) -> Result<Option<Duration>> {
        let Some(text) = self.options.get(option) else { return Ok(None) };
        match parse_duration(text) {
            Ok(span) if !span.is_zero() => Ok(Some(span)),
            Ok(_) => Err(config(format!("the option {option} is longer than nothing"))),
            Err(error) => Err(config(format!("the option {option} is a time: {error}"))),
        }
    }
}

fn decode(text: &str) -> Result<String> {
    percent::decode(text).ok_or_else(bad_escape)
}

fn bad_escape() -> Error {
    Error::new(
        ErrorKind::Config,
        "a % in the store's URL must be followed by two hexadecimal digits that spell UTF-8: \
         write % itself as %25",
    )
}

/// Without the password, if there is one.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if let Some(authority) = &self.authority {
            let shown = match authority.rsplit_once('@') {
                Some((user, hosts)) => match user.split_once(':') {
                    Some((user, _)) => format!("{user}:***@{hosts}"),
                    None => authority.clone(),
                },
                None => authority.clone(),
            };
            write!(f, "//{shown}")?;
        }
        f.write_str(&self.path)
    }
}

/// As `Display`: options may hold secrets too.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let address =
            Address::parse("REDIS://u:p%40@h1:1,h2:2/0%20x?recipe=queue&a=b%26c").unwrap();
        assert_eq!(address.scheme, "redis");
        assert_eq!(address.authority.as_deref(), Some("u:p%40@h1:1,h2:2"));
        assert_eq!(address.path, "/0 x");
        assert_eq!(address.options["recipe"], "queue");
        assert_eq!(address.options["a"], "b&c");
        let plain = Address::parse("sqlite:some/file.db").unwrap();
        assert_eq!((plain.authority, plain.path.as_str()), (None, "some/file.db"));
    }

    #[test]
    fn no_password_is_shown() {
        for url in ["redis://me:hunter2@h/0", "redis://:hunter2@h", "redis://me:hun@ter2@h"] {
            let address = Address::parse(url).unwrap();
            let shown = format!("{address} {address:?}");
            assert!(!shown.contains("hun"), "{shown}");
            assert!(shown.contains("***"), "{shown}");
        }
        for url in ["redis://a:hun/ter2@h", "redis://a:hun?ter2@h/0", "redis://:?hunter2@h"] {
            let error = Address::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hun"), "{error:?}");
            assert!(error.to_string().contains("%2F"), "{error}");
        }
        assert!(Address::parse("sqlite:/tmp/me@home.db").is_ok());
        let error = Address::parse("hunter2").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn bad_urls_are_refused() {
        for url in
            ["", "nothing", ":x", "sq lite:x", "sqlite:%", "sqlite:%zz", "sqlite:%ff", "a:?b&b"]
        {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        }
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        let address = Address::parse("sqlite:x?colour=red").unwrap();
        let error = address.only_options(&[&["sync"]]).unwrap_err();
        assert_eq!(error.to_string(), "sqlite: has no option \"colour\": it takes sync");
        assert!(address.only_options(&[&["colour"]]).is_ok());
        let error = address.only_options(&[&["color", "sync"]]).unwrap_err().to_string();
        assert!(error.contains("did you mean \"color\"? it takes color, sync"), "{error}");
    }
}
