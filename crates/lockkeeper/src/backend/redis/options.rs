//! What a Redis URL says.

use super::key::PREFIX;
use super::link::Link;
use super::route::{Door, Way};
use crate::address::Address;
use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};
use redis::{ClientTlsConfig, TlsCertificates, Value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::time::Duration;

/// Options that every scheme takes.
const KNOWN: &[&str] = &[
    "recipe",
    "prefix",
    "timeout",
    "barging",
    "allow_eviction",
    "replicas",
    "tls",
    "ca",
    "cert",
    "key",
    "sentinel_user",
    "sentinel_password",
];

/// A Redis URL, taken apart.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) way: Way,
    pub(super) door: Door,
    pub(super) recipe: String,
    pub(super) prefix: Option<String>,
    pub(super) timeout: Duration,
    pub(super) barging: bool,
    pub(super) replicas: u32,
    allow_eviction: bool,
}

impl Options {
    pub(super) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN])?;
        let option = |name: &str| address.options.get(name).map(String::as_str);
        let hosts = |port| address.hosts(port);
        let path = address.path.trim_matches('/');
        let (way, database) = match address.scheme.as_str() {
            "redis+sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(config(
                        "which primary do the sentinels watch? Write \
                         redis+sentinel://host1,host2,host3/its-name",
                    ));
                }
                let sentinels = hosts(26379)?;
                let user = option("sentinel_user").map(str::to_owned);
                let password = option("sentinel_password").map(str::to_owned);
                (Way::Sentinels { sentinels, master: master.to_owned(), user, password }, database)
            }
            "redis+cluster" => match path {
                "" | "0" => (Way::Cluster(hosts(6379)?), ""),
                _ => return Err(config("a cluster has only database 0: leave it out")),
            },
            _ => match &hosts(6379)?[..] {
                [host] => (Way::One(host.clone()), path),
                _ => {
                    return Err(config(
                        "redis:// names one server: for several see redis+sentinel:// and \
                         redis+cluster://",
                    ));
                }
            },
        };
        if option("prefix").is_some_and(|prefix| prefix.contains(char::is_control)) {
            return Err(config("a prefix has no control characters"));
        }
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| {
                config(&format!("{number:?} is no database: write redis://host/0 for number 0"))
            })?,
        };
        let (user, password) = address.credentials()?;
        let tls = address.scheme == "rediss" || address.flag("tls")?;
        address.no_certificates_without(tls)?;
        let tls = tls.then(|| certificates(&option)).transpose()?;
        let timeout = address.span("timeout")?.unwrap_or(Duration::from_secs(2));
        Ok(Self {
            way,
            door: Door { user, password, database, tls, timeout, home: Background::new() },
            recipe: option("recipe").unwrap_or("queue").to_owned(),
            prefix: option("prefix").map(str::to_owned),
            timeout,
            barging: address.flag("barging")?,
            replicas: match option("replicas") {
                None => 0,
                Some(number) => number
                    .parse()
                    .map_err(|_| config("the option replicas is a number, such as 1"))?,
            },
            allow_eviction: address.flag("allow_eviction")?,
        })
    }

    pub(super) fn prefix_or_default(&self) -> String {
        self.prefix.clone().unwrap_or_else(|| PREFIX.to_owned())
    }

    /// Refuses a server that may throw locks away when its memory is full.
    pub(super) async fn check_eviction(&self, link: &Link) -> Result<()> {
        let mut ask = redis::cmd("CONFIG");
        ask.arg("GET").arg("maxmemory-policy");
        let policy = match link.everywhere(&ask).await {
            Ok(answers) => {
                let policies: Vec<_> = answers.iter().filter_map(policy_in).collect();
                let evicts = policies.iter().find(|policy| *policy != "noeviction");
                evicts.or(policies.first()).cloned()
            }
            Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Store) => {
                tracing::warn!(%error, "cannot see whether Redis may evict locks");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match policy {
            Some(policy) if policy != "noeviction" && !self.allow_eviction => {
                Err(config(&format!(
                    "{} may throw locks away when its memory is full (maxmemory-policy is \
                     {policy}): set it to noeviction, or say ?allow_eviction=true",
                    link.route.shown()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The policy in an answer to CONFIG GET.
fn policy_in(answer: &Value) -> Option<String> {
    let policy = match answer {
        Value::Map(pairs) => &pairs.first()?.1,
        Value::Array(parts) => parts.get(1)?,
        _ => return None,
    };
    match policy {
        Value::BulkString(policy) => Some(String::from_utf8_lossy(policy).into_owned()),
        _ => None,
    }
}

fn certificates<'a>(option: &impl Fn(&str) -> Option<&'a str>) -> Result<TlsCertificates> {
    let file = |name: &str, holds: &dyn Fn(&[u8]) -> bool, what: &str| {
        let Some(path) = option(name) else { return Ok(None) };
        let content = std::fs::read(path).map_err(|error| {
            config(&format!("the file that the option {name} names cannot be read"))
                .with("file", path)
                .caused_by(error)
        })?;
        // Otherwise it would be as if it had not been named, or no one could be trusted.
        if holds(&content) {
            return Ok(Some(content));
        }
        Err(config(&format!("the file that the option {name} names holds no {what} in PEM"))
            .with("file", path))
    };
    let certificate = |content: &[u8]| {
        let mut found = CertificateDer::pem_slice_iter(content);
        matches!(found.next(), Some(Ok(_))) && found.all(|one| one.is_ok())
    };
    let key = |content: &[u8]| PrivateKeyDer::from_pem_slice(content).is_ok();
    let shown = (file("cert", &certificate, "certificate")?, file("key", &key, "private key")?);
    let client_tls = match shown {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => return Err(config("the options cert and key go together")),
    };
    Ok(TlsCertificates { client_tls, root_cert: file("ca", &certificate, "certificate")? })
}

fn config(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}
