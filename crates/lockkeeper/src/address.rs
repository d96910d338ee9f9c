//! The parts of a store's URL.

use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt;

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

    /// Takes every option out, refusing those not in `known`.
    pub(crate) fn only_options(&self, known: &[&str]) -> Result<()> {
        let unknown = self.options.keys().find(|key| !known.contains(&key.as_str()));
        let Some(unknown) = unknown else { return Ok(()) };
        let known = match known {
            [] => "it takes none".to_owned(),
            known => format!("it takes {}", known.join(", ")),
        };
        let scheme = &self.scheme;
        Err(Error::new(ErrorKind::Config, format!("{scheme}: has no option {unknown:?}: {known}")))
    }
}

fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = byte else { return Err(bad_escape()) };
        bytes.push(byte);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| bad_escape())
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
        let error = address.only_options(&["sync"]).unwrap_err();
        assert_eq!(error.to_string(), "sqlite: has no option \"colour\": it takes sync");
        assert!(address.only_options(&["colour"]).is_ok());
    }
}
