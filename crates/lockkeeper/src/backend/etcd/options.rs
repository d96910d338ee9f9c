//! What an `etcd:` URL says, and the same as a struct.
//!
//! No I/O but for the files with certificates that a URL names. What a URL cannot say is for the
//! struct: certificates in memory, endpoints with settings of their own.

use super::Etcd;
use crate::address::Address;
use crate::backend::support::options::{TLS, config};
use crate::backend::{Backend, Background, OpenStore, TlsOptions};
use crate::error::{Error, Result};
use crate::patience::OUTAGE;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// The options of the URL, beside those for TLS.
const KNOWN: &[&str] = &["prefix", "session", "timeout"];

const PORT: u16 = 2379;
/// What our keys begin with unless the URL says otherwise.
const PREFIX: &str = "lockkeeper/";
/// How long a session lasts without a heartbeat, unless the URL says otherwise.
const SESSION: Duration = Duration::from_secs(10);
/// The shortest lease that etcd grants with its usual settings.
const SHORTEST_SESSION: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(2);
/// etcd accepts pings on a quiet connection no more often than every five seconds.
const PING: Duration = Duration::from_secs(10);

/// Where etcd is and how locks are kept there; see [`connect_with`](crate::connect_with).
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::backend::etcd::EtcdOptions;
///
/// let mut options = EtcdOptions::new([("127.0.0.1", 2379)]);
/// // The same locks as `etcdctl lock NAME`.
/// options.prefix = String::new();
/// let keeper = lockkeeper::connect_with(options).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// The members, any of them: host and port.
    pub hosts: Vec<(String, u16)>,
    /// Members as endpoints that are already set up, used instead of `hosts`, `timeout` and `tls`
    /// for making connections; see [`from_endpoints`](Self::from_endpoints).
    pub endpoints: Vec<Endpoint>,
    /// The user and the password.
    pub user: Option<(String, String)>,
    /// What every key begins with, to the letter; may be empty.
    pub prefix: String,
    /// How long others wait after a crash of this process: at least two seconds, whole seconds.
    pub session: Duration,
    /// How long one member may take to answer.
    pub timeout: Duration,
    /// How to encrypt; plain where there is none.
    pub tls: Option<TlsOptions>,
    /// How long a claim that waits puts up with a store that does not answer.
    pub outage: Duration,
    /// The URL without its secrets, where there was one.
    shown: Option<String>,
}

/// What it takes to make a connection, checked.
pub(super) struct ConnectOptions {
    /// At least one.
    pub(super) members: Vec<Endpoint>,
    pub(super) user: Option<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) encrypted: bool,
    /// The URL without its secrets.
    pub(super) shown: String,
}

impl EtcdOptions {
    /// Locks in the etcd whose members are these hosts and ports, with keys below `lockkeeper/`.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            hosts: hosts.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            endpoints: Vec::new(),
            user: None,
            prefix: PREFIX.to_owned(),
            session: SESSION,
            timeout: TIMEOUT,
            tls: None,
            outage: OUTAGE,
            shown: None,
        }
    }

    /// Locks in the etcd whose members are reached through these endpoints, with whatever they
    /// have been given: certificates, time limits, an origin. There must be at least one.
    pub fn from_endpoints(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        let none: [(String, u16); 0] = [];
        Self { endpoints: endpoints.into_iter().collect(), ..Self::new(none) }
    }

    /// What the URL says.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN, TLS])?;
        let user = match address.credentials()? {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user, password)),
            _ => {
                return Err(config("a user and a password go together: etcd://user:password@host"));
            }
        };
        Ok(Self {
            user,
            prefix: prefix(address)?,
            session: address.span("session")?.unwrap_or(SESSION),
            timeout: address.span("timeout")?.unwrap_or(TIMEOUT),
            tls: TlsOptions::read(address, address.flag("tls")?)?,
            shown: Some(address.to_string()),
            ..Self::new(address.hosts(PORT)?)
        })
    }

    /// The part that makes connections; an error for options that make no sense.
    pub(super) fn connecting(&self) -> Result<ConnectOptions> {
        if self.session < SHORTEST_SESSION {
            return Err(config("a session of etcd lasts at least 2s, the shortest it grants"));
        }
        let members = match &self.endpoints[..] {
            [] => self.hosts.iter().map(|host| self.endpoint(host)).collect::<Result<Vec<_>>>()?,
            endpoints => endpoints.to_vec(),
        };
        if members.is_empty() {
            return Err(config("etcd has no host to connect to: name at least one"));
        }
        let is_https = |member: &Endpoint| member.uri().scheme_str() == Some("https");
        Ok(ConnectOptions {
            encrypted: members.iter().all(is_https),
            user: self.user.clone(),
            timeout: self.timeout,
            shown: self.shown.clone().unwrap_or_else(|| show(&members)),
            members,
        })
    }

    /// The endpoint of one member, with time limits and certificates.
    fn endpoint(&self, (host, port): &(String, u16)) -> Result<Endpoint> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let bad = |error| -> Error { config("a host of the URL cannot be used").caused_by(error) };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}:{port}"))
            .map_err(bad)?
            .connect_timeout(self.timeout)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(self.timeout);
        match &self.tls {
            Some(tls) => endpoint.tls_config(certificates(tls)).map_err(bad),
            None => Ok(endpoint),
        }
    }
}

#[async_trait]
impl OpenStore for EtcdOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Etcd::open(*self, background).await?))
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}

/// What every key begins with: the option `prefix` to the letter, or else the path, with a slash
/// behind it and without the one that ends the hosts.
///
/// The path alone could not say "nothing": `etcd://host/` is what people write who mean the
/// default.
fn prefix(address: &Address) -> Result<String> {
    let path = address.path.strip_prefix('/').unwrap_or(&address.path);
    match (address.options.get("prefix"), path) {
        (Some(prefix), "") => Ok(prefix.clone()),
        (Some(_), _) => Err(config(
            "the path of an etcd URL is the prefix of its keys already: leave out the option \
             prefix, or the path",
        )),
        (None, "") => Ok(PREFIX.to_owned()),
        (None, path) if path.ends_with('/') => Ok(path.to_owned()),
        (None, path) => Ok(format!("{path}/")),
    }
}

/// The certificates as the gRPC library takes them.
fn certificates(tls: &TlsOptions) -> ClientTlsConfig {
    let config = match &tls.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    match &tls.identity {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    }
}

/// A URL for a store that was opened without one.
fn show(members: &[Endpoint]) -> String {
    let hosts = members.iter().filter_map(|member| Some(member.uri().authority()?.as_str()));
    format!("etcd://{}", hosts.collect::<Vec<_>>().join(","))
}

/// Without the password.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("hosts", &self.hosts)
            .field("prefix", &self.prefix)
            .field("session", &self.session)
            .field("timeout", &self.timeout)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions").field("shown", &self.shown).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn read(url: &str) -> Result<EtcdOptions> {
        let options = EtcdOptions::read(&Address::parse(url).unwrap())?;
        options.connecting()?;
        Ok(options)
    }

    #[test]
    fn the_path_or_the_option_is_the_prefix() {
        for (url, prefix) in [
            ("etcd://h", "lockkeeper/"),
            ("etcd://h/", "lockkeeper/"),
            ("etcd://h/locks", "locks/"),
            ("etcd://h/a/b/", "a/b/"),
            ("etcd://h//locks", "/locks/"),
            ("etcd://h?prefix=", ""),
            ("etcd://h/?prefix=", ""),
            ("etcd://h?prefix=app-", "app-"),
            ("etcd://h?prefix=/jobs/", "/jobs/"),
            ("etcd://h?prefix=%2Fjobs%2F", "/jobs/"),
        ] {
            assert_eq!(read(url).unwrap().prefix, prefix, "{url}");
        }
    }

    #[test]
    fn nonsense_is_refused_without_the_password() {
        for url in [
            "etcd://h?session=1s",
            "etcd://h?colour=red",
            "etcd://user@h",
            "etcd://h:x",
            "etcd://h/locks?prefix=locks/",
            "etcd://me:hunter2@h?tls=true&cert=/nowhere/at/all",
            "etcd://h?ca=/etc/authority.pem",
            "etcd://h?tls=false&cert=/etc/us.pem&key=/etc/us.key",
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
        let options = read("etcd://me:hunter2@h1,h2:1").unwrap();
        assert_eq!(options.hosts, [("h1".to_owned(), 2379), ("h2".to_owned(), 1)]);
        let connecting = options.connecting().unwrap();
        assert_eq!(connecting.members.len(), 2);
        for shown in [format!("{options:?}"), format!("{connecting:?}"), connecting.shown] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn endpoints_of_the_callers_own_are_used_as_they_are() {
        let endpoint = Endpoint::from_static("https://h1:7");
        let options = EtcdOptions::from_endpoints([endpoint]).connecting().unwrap();
        assert_eq!((options.shown.as_str(), options.encrypted), ("etcd://h1:7", true));
        let none: [Endpoint; 0] = [];
        let error = EtcdOptions::from_endpoints(none).connecting().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
