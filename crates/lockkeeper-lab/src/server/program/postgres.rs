//! PostgreSQL.

use super::tls::Certificates;
use super::{Clock, Program, postgres_replicated};
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::template;
use crate::server::tool::{INITDB, POSTGRES};
use crate::server::wire;
use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Whom the server lets in that asks for certificates: the lab itself comes without TLS.
const ASKS_FOR_CERTIFICATES: &str = "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n\
    hostnossl all all 127.0.0.1/32 trust\n";

/// A PostgreSQL server.
#[derive(Debug, Clone, Default)]
pub struct Postgres {
    settings: Vec<String>,
    /// The port on which the server is reached that this one follows.
    pub(crate) primary: Option<u16>,
    tls: bool,
    asks_for_certificates: bool,
}

impl Plan<Postgres> {
    /// Adds a setting: `name=value`. Of two for one name the later counts.
    pub fn config(mut self, setting: &str) -> Self {
        self.program.settings.push(setting.to_owned());
        self
    }

    /// Uses TLS with clients that ask for it; see [`Certificates`].
    pub fn tls(mut self) -> Self {
        self.program.tls = true;
        self.config("ssl=on")
            .config("ssl_cert_file=certificate.pem")
            .config("ssl_key_file=certificate.key")
    }

    /// Uses TLS, and then accepts only clients with a certificate.
    pub fn client_certificates(mut self) -> Self {
        self.program.asks_for_certificates = true;
        self.tls().config("ssl_ca_file=authority.pem")
    }
}

impl Postgres {
    fn template(&self, place: &Place) -> Result<PathBuf> {
        let folder = place.home.new_folder("postgres-template")?;
        let scratch = Place {
            home: Arc::clone(&place.home),
            data: folder.join("data"),
            folder,
            ports: Vec::new(),
            user: place.user.clone(),
        };
        scratch.make_data()?;
        let data = scratch.data.clone();
        scratch.run(words![
            INITDB.path()?,
            "--pgdata",
            &data,
            "--username=lockkeeper",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ])?;
        // Single-user mode reads its commands from the input, so there is no server to wait for.
        let commands = scratch.folder.join("commands.sql");
        std::fs::write(&commands, "CREATE DATABASE lockkeeper;\n")?;
        scratch.run(words![
            "/bin/sh",
            "-c",
            "exec \"$1\" --single -F -D \"$2\" postgres <\"$3\"",
            "sh",
            POSTGRES.path()?,
            &data,
            &commands,
        ])?;
        Ok(data)
    }
}

impl Program for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn user(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        if let Some(primary) = self.primary {
            return postgres_replicated::copy_of(primary, place);
        }
        let template = place.home.templates.get("postgres", || self.template(place))?;
        template::copy(&template, place.data())?;
        if self.tls {
            Certificates::make_for_user(place)?;
        }
        if self.asks_for_certificates {
            std::fs::write(place.data().join("pg_hba.conf"), ASKS_FOR_CERTIFICATES)?;
        }
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let mut words =
            words![POSTGRES.path()?, "-D", place.data(), "-p", place.port().to_string()];
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            // The machine itself never goes down in a test, and the writes of a killed server are
            // safe.
            "fsync=off",
            "shared_buffers=16MB",
            "max_connections=300",
            "timezone=UTC",
        ] {
            words.extend(words!["-c", setting]);
        }
        for setting in &self.settings {
            words.extend(words!["-c", setting]);
        }
        Ok(words)
    }

    fn ask(&self, place: &Place) -> Result<()> {
        let said = wire::postgres::query(place.port(), "SELECT 1")?;
        if said == ["1"] { Ok(()) } else { bail!("postgres said {said:?}") }
    }

    fn url(&self, place: &Place) -> String {
        let tls = if self.tls { "?tls=true" } else { "" };
        format!("postgres://lockkeeper@127.0.0.1:{}/lockkeeper{tls}", place.port())
    }

    /// `TERM` would wait until every client disconnects.
    fn stop_signal(&self) -> Signal {
        Signal::SIGINT
    }

    fn clock(&self) -> Clock {
        Clock::Preload
    }
}
