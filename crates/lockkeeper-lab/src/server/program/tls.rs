//! Certificates for one server and its clients.

use crate::server::place::{Place, words};
use crate::server::tool::OPENSSL;
use anyhow::Result;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An authority, and the certificates it signed. The server's certificate is not the authority's
/// own, because strict clients refuse a server that presents the very certificate they trust.
#[derive(Debug)]
#[non_exhaustive]
pub struct Certificates {
    /// The authority that clients of a server with TLS must trust.
    pub authority: PathBuf,
    authority_key: PathBuf,
    /// The server's certificate, for 127.0.0.1 and localhost.
    pub certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// A client's certificate, for servers that ask for one.
    pub client: PathBuf,
    /// The key of `client`.
    pub client_key: PathBuf,
}

impl Certificates {
    /// The files of a server that was started with TLS; see [`Server::folder`].
    ///
    /// [`Server::folder`]: crate::server::Server::folder
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            authority: folder.join("authority.pem"),
            authority_key: folder.join("authority.key"),
            certificate: folder.join("certificate.pem"),
            key: folder.join("certificate.key"),
            client: folder.join("client.pem"),
            client_key: folder.join("client.key"),
        }
    }

    /// Creates the files of a place whose server has a user of its own, unless they exist, and
    /// copies what the server needs into its data, where that user may read it: the certificate,
    /// the key and the authority, by the names that they have in the place.
    pub(crate) fn make_for_user(place: &Place) -> Result<()> {
        let made = Self::make(&Place {
            home: Arc::clone(&place.home),
            folder: place.folder.clone(),
            data: place.data.clone(),
            ports: place.ports.clone(),
            user: None,
        })?;
        for file in [&made.certificate, &made.key, &made.authority] {
            let copy = place.data().join(file.file_name().unwrap_or_default());
            std::fs::copy(file, &copy)?;
            std::fs::set_permissions(&copy, Permissions::from_mode(0o600))?;
            place.own(&copy)?;
        }
        Ok(())
    }

    /// Creates the files of a place, unless they exist.
    pub(crate) fn make(place: &Place) -> Result<Self> {
        let made = Self::in_folder(place.folder());
        if made.client.exists() {
            return Ok(made);
        }
        let mut authority = new("/CN=lockkeeper lab")?;
        authority.extend(words!["-out", &made.authority, "-keyout", &made.authority_key]);
        place.run(authority)?;
        for (subject, certificate, key) in [
            ("/CN=127.0.0.1", &made.certificate, &made.key),
            ("/CN=a client", &made.client, &made.client_key),
        ] {
            let mut signed = new(subject)?;
            signed.extend(words!["-CA", &made.authority, "-CAkey", &made.authority_key]);
            signed.extend(words!["-addext", "basicConstraints=critical,CA:FALSE"]);
            signed.extend(words!["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
            signed.extend(words!["-out", certificate, "-keyout", key]);
            place.run(signed)?;
        }
        Ok(made)
    }
}

fn new(subject: &str) -> Result<Vec<OsString>> {
    Ok(words![
        OPENSSL.path()?,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "30",
        "-subj",
        subject,
    ])
}
