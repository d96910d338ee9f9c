//! TLS to ZooKeeper.

use super::options::config;
use crate::error::Result;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Whom to trust, and what to show.
#[derive(Clone)]
pub(super) struct Settings(Arc<ClientConfig>);

impl Settings {
    pub(super) fn read<'a>(option: &impl Fn(&str) -> Option<&'a str>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        match option("ca") {
            Some(file) => {
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|error| unreadable(file).caused_by(error))?;
                }
            }
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
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| config("TLS cannot be set up").caused_by(error))?
            .with_root_certificates(roots);
        let settings = match (option("cert"), option("key")) {
            (None, None) => builder.with_no_client_auth(),
            (Some(chain), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unreadable(key).caused_by(error.to_string()))?;
                builder
                    .with_client_auth_cert(certificates(chain)?, private)
                    .map_err(|error| unreadable(chain).caused_by(error))?
            }
            _ => return Err(config("the options cert and key go together")),
        };
        Ok(Self(Arc::new(settings)))
    }

    pub(super) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(self.0.clone()).connect(name, stream).await
    }
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.map_err(|error| unreadable(file).caused_by(error.to_string()))
}

fn unreadable(file: &str) -> crate::error::Error {
    config("a file that the URL names for TLS cannot be used").with("file", file)
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settings")
    }
}
