//! TLS for stores whose protocol we speak ourselves.
//!
//! None of them has STARTTLS: a port speaks either plain text or TLS, and the handshake of the protocol
//! comes after that of TLS. Certificates are checked against the host's name as the URL spells it.

use crate::backend::TlsOptions;
use crate::backend::support::tls::client_config;
use crate::error::Result;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
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
        Ok(Self(client_config(options)?))
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

/// Without the key.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encryption")
    }
}
