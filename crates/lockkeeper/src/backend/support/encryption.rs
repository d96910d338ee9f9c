//! TLS for stores whose protocol we speak ourselves.
//!
//! None of them has STARTTLS: a port speaks either plain text or TLS, and the handshake of the protocol
//! comes after that of TLS. Certificates are checked against the host's name as the URL spells it.

use crate::backend::TlsOptions;
use crate::backend::support::options::config;
use crate::error::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Which certificates to trust, and which one to present.
#[derive(Clone)]
pub(crate) struct Encryption(Arc<ClientConfig>);

impl Encryption {
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for certificates that rustls cannot use.
    pub(crate) fn new(options: &TlsOptions) -> Result<Self> {
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
                    return Err(config(
                        "this machine has no certificates to trust: name some with ?ca=FILE",
                    ));
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
        Ok(Self(Arc::new(settings)))
    }

    /// Encrypts a connection to `host`, whose certificate must be for that name.
    pub(crate) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(self.0.clone()).connect(name, stream).await
    }
}

/// Every certificate in a PEM text.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>();
    read.map_err(|error| unusable().caused_by(error.to_string()))
}

/// The text does not quote what was given: it may be a private key.
fn unusable() -> Error {
    config("a certificate or key that is given for TLS cannot be used")
}

/// Without the key.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encryption")
    }
}
