//! The certificates that a URL names.

use super::options::config;
use crate::address::Address;
use crate::error::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
#[cfg(any(feature = "memcached", feature = "postgres", feature = "zookeeper"))]
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
#[cfg(any(feature = "memcached", feature = "postgres", feature = "zookeeper"))]
use std::sync::Arc;

/// How a connection is encrypted: whom to trust, and what to show to a server that asks. All of it
/// is PEM.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct TlsOptions {
    /// The certificates to trust; those that the system trusts when there are none.
    pub ca: Option<Vec<u8>>,
    /// The certificate to show, with those that vouch for it, and its private key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsOptions {
    /// Trusts those whom the system trusts, and shows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates in `pem` instead of those that the system trusts.
    #[must_use]
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Shows a certificate, and proves by its private key that it is ours.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// What the options `ca`, `cert` and `key` say; `None` where `encrypted` is not so, and an
    /// error where they are given all the same.
    pub(crate) fn read(address: &Address, encrypted: bool) -> Result<Option<Self>> {
        address.no_certificates_without(encrypted)?;
        if !encrypted {
            return Ok(None);
        }
        let ca = file(address, "ca", is_certificates, "certificate")?;
        let shown = (
            file(address, "cert", is_certificates, "certificate")?,
            file(address, "key", is_key, "private key")?,
        );
        let identity = match shown {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(config("the options cert and key go together")),
        };
        Ok(Some(Self { ca, identity }))
    }
}

fn file(
    address: &Address,
    option: &str,
    holds: fn(&[u8]) -> bool,
    what: &str,
) -> Result<Option<Vec<u8>>> {
    let Some(path) = address.options.get(option) else { return Ok(None) };
    let problem = |why: String| -> Error { config(why).with("file", path) };
    let content = std::fs::read(path).map_err(|error| {
        problem(format!("the file that the option {option} names cannot be read")).caused_by(error)
    })?;
    // Otherwise it would be as if it had not been named, or no one could be trusted.
    match holds(&content) {
        true => Ok(Some(content)),
        false => {
            Err(problem(format!("the file that the option {option} names holds no {what} in PEM")))
        }
    }
}

fn is_certificates(content: &[u8]) -> bool {
    let mut found = CertificateDer::pem_slice_iter(content);
    matches!(found.next(), Some(Ok(_))) && found.all(|one| one.is_ok())
}

fn is_key(content: &[u8]) -> bool {
    PrivateKeyDer::from_pem_slice(content).is_ok()
}

/// What rustls needs to know, for stores whose driver does not make it itself.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) for certificates that rustls cannot use.
#[cfg(any(feature = "memcached", feature = "postgres", feature = "zookeeper"))]
pub(crate) fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    match &options.ca {
        Some(pem) => {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(|error| unusable().caused_by(error))?;
            }
        }
        // Not all of a system's certificates need to be usable, but some must be.
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                return Err(no_certificates());
            }
        }
    }
    // Named here instead of installed for the whole process, which is not a library's to do.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| config("TLS cannot be set up").caused_by(error))?
        .with_root_certificates(roots);
    let settings = match &options.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let private = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| unusable().caused_by(error.to_string()))?;
            builder
                .with_client_auth_cert(certificates(chain)?, private)
                .map_err(|error| unusable().caused_by(error))?
        }
    };
    Ok(Arc::new(settings))
}

/// Every certificate in a PEM text.
#[cfg(any(feature = "memcached", feature = "postgres", feature = "zookeeper"))]
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>();
    read.map_err(|error| unusable().caused_by(error.to_string()))
}

/// The error for a machine that trusts nobody.
#[cfg(any(feature = "memcached", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) fn no_certificates() -> Error {
    config("this machine has no certificates to trust: name some with ?ca=FILE")
}

/// The text does not quote what was given: it may be a private key.
#[cfg(any(feature = "memcached", feature = "postgres", feature = "zookeeper"))]
fn unusable() -> Error {
    config("a certificate or key that is given for TLS cannot be used")
}

/// Without the key.
impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}
