//! What an etcd URL says.

use super::link::Door;
use crate::address::Address;
use crate::error::{Error, ErrorKind, Result};
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

const KNOWN: &[&str] = &["session", "timeout", "tls", "ca", "cert", "key"];

/// What our keys begin with unless the URL says otherwise.
const PREFIX: &str = "lockkeeper/";
/// How long a session lasts without a sign of life, unless the URL says otherwise.
const SESSION: Duration = Duration::from_secs(10);
/// etcd takes pings over a quiet connection no oftener than every five seconds.
const PING: Duration = Duration::from_secs(10);

/// An etcd URL, taken apart.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) door: Door,
    pub(super) prefix: String,
    pub(super) session: Duration,
}

impl Options {
    pub(super) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN])?;
        let timeout = address.span("timeout")?.unwrap_or(Duration::from_secs(2));
        let session = address.span("session")?.unwrap_or(SESSION);
        if session < Duration::from_secs(2) {
            return Err(config("a session of etcd lasts at least 2s, the shortest it grants"));
        }
        let tls = address.flag("tls")?;
        address.no_certificates_without(tls)?;
        let certificates = if tls { Some(certificates(address)?) } else { None };
        let scheme = if tls { "https" } else { "http" };
        let hosts = address.hosts(2379)?.into_iter().map(|(host, port)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let bad = |error| config("a host of the URL cannot be used").caused_by(error);
            let endpoint = Endpoint::from_shared(format!("{scheme}://{host}:{port}"))
                .map_err(bad)?
                .connect_timeout(timeout)
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(timeout);
            match &certificates {
                Some(tls) => endpoint.tls_config(tls.clone()).map_err(bad),
                None => Ok(endpoint),
            }
        });
        let credentials = match address.credentials()? {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user, password)),
            _ => {
                return Err(config("a user and a password go together: etcd://user:password@host"));
            }
        };
        let hosts = hosts.collect::<Result<Vec<_>>>()?;
        let shown = address.to_string();
        let door = Door { hosts, credentials, timeout, encrypted: tls, shown };
        Ok(Self { door, prefix: prefix(&address.path), session })
    }
}

/// The path without the slash that ends the hosts, and with one behind it.
fn prefix(path: &str) -> String {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => PREFIX.to_owned(),
        path if path.ends_with('/') => path.to_owned(),
        path => format!("{path}/"),
    }
}

fn certificates(address: &Address) -> Result<ClientTlsConfig> {
    let file = |name: &str| {
        let read = |path: &String| {
            std::fs::read(path).map_err(|error| {
                config(&format!("the file that the option {name} names cannot be read"))
                    .with("file", path)
                    .caused_by(error)
            })
        };
        address.options.get(name).map(read).transpose()
    };
    let tls = match file("ca")? {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    match (file("cert")?, file("key")?) {
        (Some(cert), Some(key)) => Ok(tls.identity(Identity::from_pem(cert, key))),
        (None, None) => Ok(tls),
        _ => Err(config("the options cert and key go together")),
    }
}

fn config(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Options> {
        Options::read(&Address::parse(url).unwrap())
    }

    #[test]
    fn the_path_is_the_prefix() {
        for (url, prefix) in [
            ("etcd://h", "lockkeeper/"),
            ("etcd://h/", "lockkeeper/"),
            ("etcd://h/locks", "locks/"),
            ("etcd://h/a/b/", "a/b/"),
            ("etcd://h//locks", "/locks/"),
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
            "etcd://me:hunter2@h?tls=true&cert=/nowhere/at/all",
            "etcd://h?ca=/etc/authority.pem",
            "etcd://h?tls=false&cert=/etc/us.pem&key=/etc/us.key",
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
        let options = read("etcd://me:hunter2@h1,h2:1").unwrap();
        assert_eq!(options.door.hosts.len(), 2);
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
