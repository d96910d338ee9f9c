//! What a `memcached://` URL says, or a program in its place.
//!
//! Nothing here touches the network. Whatever can be refused without a server is refused here.

use super::client::ConnectOptions;
use super::keys::Keys;
use crate::address::Address;
use crate::backend::support::encryption::Encryption;
use crate::backend::support::options::{TLS, config};
use crate::backend::{Backend, Background, OpenStore, TlsOptions};
use crate::error::Result;
use crate::patience::OUTAGE;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The options of a URL besides those for TLS.
const KNOWN: &[&str] = &["prefix", "timeout", "connect_timeout"];
/// Where a server listens unless the URL has a port.
const PORT: u16 = 11211;
/// What keys begin with unless the URL says otherwise.
const PREFIX: &str = "lockkeeper:";

/// Where the servers are, and how their keys are called; see [`connect_with`](crate::connect_with).
///
/// ```
/// use lockkeeper::backend::memcached::MemcachedOptions;
///
/// let mut options = MemcachedOptions::new([("cache1", 11211), ("cache2", 11211)]);
/// // The keys are the bare names, shared with programs that `add` those.
/// options.prefix = String::new();
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct MemcachedOptions {
    /// The servers, with their ports. Every program that shares the locks names the same ones; their
    /// order does not matter.
    pub hosts: Vec<(String, u16)>,
    /// What keys begin with; nothing for keys that are the bare names.
    pub prefix: String,
    /// The user and the password for a server with an authentication file (`-Y`).
    pub credentials: Option<(String, String)>,
    /// How to encrypt; `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// How long a request may take.
    pub timeout: Duration,
    /// How long connecting, encryption and login may take together.
    pub connect_timeout: Duration,
    /// How long a waiting claim puts up with a server that does not answer.
    pub outage: Duration,
    /// The URL without secrets, if this was one.
    url: Option<String>,
}

impl MemcachedOptions {
    /// Locks on these servers, each name on one of them.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            hosts: hosts.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            prefix: PREFIX.to_owned(),
            credentials: None,
            tls: None,
            timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            outage: OUTAGE,
            url: None,
        }
    }

    /// What a URL says.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an option that is unknown or makes no
    /// sense, and for TLS files that cannot be read.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN, TLS])?;
        if !address.path.trim_start_matches('/').is_empty() {
            return Err(config(
                "memcached has no databases to name with a path: write memcached://host:11211",
            ));
        }
        let mut options = Self::new(address.hosts(PORT)?);
        if let Some(prefix) = address.options.get("prefix") {
            options.prefix.clone_from(prefix);
        }
        let (user, password) = address.credentials()?;
        options.credentials = match (user, password) {
            (None, None) => None,
            (user, password) => Some((user.unwrap_or_default(), password.unwrap_or_default())),
        };
        options.tls = TlsOptions::read(address, address.flag("tls")?)?;
        options.timeout = address.span("timeout")?.unwrap_or(options.timeout);
        options.connect_timeout =
            address.span("connect_timeout")?.unwrap_or(options.connect_timeout);
        options.url = Some(address.to_string());
        // So that nonsense is refused without a connection.
        options.keys()?;
        options.login()?;
        Ok(options)
    }

    /// How names become keys and find their server.
    pub(super) fn keys(&self) -> Result<Keys> {
        Keys::new(&self.prefix, &self.hosts)
    }

    /// The login as the server wants it: `user password`.
    ///
    /// # Errors
    /// For what would be read as another user.
    fn login(&self) -> Result<Option<String>> {
        let Some((user, password)) = &self.credentials else { return Ok(None) };
        if user.is_empty() || password.is_empty() {
            return Err(config("memcached logs in with a user and a password: name both"));
        }
        let strange = |c: char| c.is_control() || c == ' ';
        if user.contains(strange) || password.contains(strange) || user.contains(':') {
            return Err(config(
                "the user or the password has a character that memcached's authentication file \
                 cannot hold: a space, a control character, or a : in the user",
            ));
        }
        Ok(Some(format!("{user} {password}")))
    }

    /// What the client needs to know of it. Sets TLS up, so that certificates which cannot be used
    /// are reported before a connection is tried.
    pub(super) fn connect_options(&self) -> Result<ConnectOptions> {
        Ok(ConnectOptions {
            hosts: self.hosts.clone(),
            login: self.login()?,
            tls: self.tls.as_ref().map(Encryption::new).transpose()?,
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            shown: self.to_string(),
        })
    }
}

#[async_trait]
impl OpenStore for MemcachedOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        super::open(*self, background).await
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}

/// The URL, without secrets and options.
impl fmt::Display for MemcachedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(url) = &self.url {
            return f.write_str(url);
        }
        f.write_str("memcached://")?;
        if let Some((user, _)) = &self.credentials {
            write!(f, "{user}:***@")?;
        }
        let hosts: Vec<_> = self.hosts.iter().map(super::keys::address).collect();
        f.write_str(&hosts.join(","))
    }
}

/// Without the password.
impl fmt::Debug for MemcachedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcachedOptions")
            .field("url", &self.to_string())
            .field("prefix", &self.prefix)
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .field("outage", &self.outage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn read(url: &str) -> Result<MemcachedOptions> {
        MemcachedOptions::read(&Address::parse(url).unwrap())
    }

    #[test]
    fn a_url_says_it_all() {
        let url = "memcached://me:hunter2@h1,h2:11212?prefix=&timeout=1s&connect_timeout=500ms";
        let options = read(url).unwrap();
        assert_eq!(options.hosts, [("h1".into(), 11211), ("h2".into(), 11212)]);
        assert_eq!((options.prefix.as_str(), options.timeout.as_secs()), ("", 1));
        assert_eq!(options.connect_options().unwrap().login.as_deref(), Some("me hunter2"));
        let connect = format!("{options:?} {options} {:?}", options.connect_options().unwrap());
        assert!(!connect.contains("hunter2"), "{connect}");
        let plain = read("memcached://h").unwrap();
        assert_eq!((plain.prefix.as_str(), plain.credentials), ("lockkeeper:", None));
    }

    #[test]
    fn options_of_a_program_are_shown_as_a_url() {
        let mut options = MemcachedOptions::new([("h1", 11211), ("::1", 2)]);
        options.credentials = Some(("me".into(), "hunter2".into()));
        assert_eq!(options.to_string(), "memcached://me:***@h1:11211,[::1]:2");
        assert!(MemcachedOptions::new::<String>([]).keys().is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for url in [
            "memcached://h/0",
            "memcached://h?recipe=queue",
            "memcached://h?prefix=a%20b",
            "memcached://h?prefix=a%0d%0ab",
            "memcached://h?prefix=100%25",
            "memcached://h?timeout=soon",
            "memcached://h?ca=/etc/authority.pem",
            "memcached://me@h",
            "memcached://m%20e:x@h",
            "memcached://me:x%0d%0a@h",
            "memcached://h,h",
            "memcached://",
        ] {
            assert_eq!(read(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
