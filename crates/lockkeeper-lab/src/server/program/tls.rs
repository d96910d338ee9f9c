//! Certificates for one server.

use crate::server::place::{Place, words};
use crate::server::tool::OPENSSL;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// An authority and a certificate it signed. Two, because careful clients refuse a server that
/// shows the very certificate they trust as an authority.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    authority_key: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            authority: folder.join("authority.pem"),
            authority_key: folder.join("authority.key"),
            certificate: folder.join("certificate.pem"),
            key: folder.join("certificate.key"),
        }
    }

    /// Makes them, unless they are there.
    pub(crate) fn make(&self, place: &Place) -> Result<()> {
        if self.certificate.exists() {
            return Ok(());
        }
        let new = || -> Result<Vec<_>> {
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
                "30"
            ])
        };
        let mut authority = new()?;
        authority.extend(words!["-subj", "/CN=lockkeeper lab"]);
        authority.extend(words!["-out", &self.authority, "-keyout", &self.authority_key]);
        place.run(authority)?;
        let mut certificate = new()?;
        certificate.extend(words!["-subj", "/CN=127.0.0.1"]);
        certificate.extend(words!["-CA", &self.authority, "-CAkey", &self.authority_key]);
        certificate.extend(words!["-addext", "basicConstraints=critical,CA:FALSE"]);
        certificate.extend(words!["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
        certificate.extend(words!["-out", &self.certificate, "-keyout", &self.key]);
        place.run(certificate)
    }
}
