//! MariaDB.

use super::tls::Certificates;
use super::{Clock, Program};
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::template;
use crate::server::tool::{GALERA, MARIADB, MARIADB_INSTALL};
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Run at every start, before the first client.
const WELCOME: &str = "CREATE DATABASE IF NOT EXISTS lockkeeper;\n\
    CREATE USER IF NOT EXISTS lockkeeper@'127.0.0.1';\n\
    GRANT ALL ON *.* TO lockkeeper@'127.0.0.1' WITH GRANT OPTION;\n";
/// Of a server that is read only: a user that has every right may write all the same.
const WELCOME_TO_READ: &str = "CREATE DATABASE IF NOT EXISTS lockkeeper;\n\
    CREATE USER IF NOT EXISTS lockkeeper@'127.0.0.1';\n\
    GRANT ALL ON lockkeeper.* TO lockkeeper@'127.0.0.1';\n";
/// The lab itself comes without TLS.
const WELCOME_WITH_A_CERTIFICATE: &str = "CREATE USER IF NOT EXISTS certified@'127.0.0.1' REQUIRE X509;\n\
    GRANT ALL ON lockkeeper.* TO certified@'127.0.0.1';\n";
const SMALL: [&str; 4] = [
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=16M",
    // The machine itself never goes down in a test.
    "--innodb-flush-log-at-trx-commit=2",
    "--aria-log-file-size=8M",
];

/// A MariaDB server.
#[derive(Debug, Clone, Default)]
pub struct MariaDb {
    settings: Vec<String>,
    read_only: bool,
    galera: bool,
    tls: bool,
    asks_for_certificates: bool,
}

impl Plan<MariaDb> {
    /// Adds an option of the command line: `--name=value`. Of two for one name the later counts.
    pub fn config(mut self, option: &str) -> Self {
        self.program.settings.push(option.to_owned());
        self
    }

    /// Lets nobody write, as on a replica.
    pub fn read_only(mut self) -> Self {
        self.program.read_only = true;
        self.config("--read-only=ON")
    }

    /// Uses TLS with clients that ask for it; see [`Certificates`].
    pub fn tls(mut self) -> Self {
        self.program.tls = true;
        self
    }

    /// Uses TLS, and lets the user of its URL in with a certificate only.
    pub fn client_certificates(mut self) -> Self {
        self.program.asks_for_certificates = true;
        self.tls()
    }

    /// Makes it the first member of a Galera cluster, in which every member takes writes.
    pub fn galera(mut self) -> Self {
        self.program.galera = true;
        self
    }
}

impl MariaDb {
    fn template(&self, place: &Place) -> Result<PathBuf> {
        let folder = place.home.new_folder("mariadb-template")?;
        let scratch = Place {
            home: Arc::clone(&place.home),
            data: folder.join("data"),
            folder,
            ports: Vec::new(),
            user: place.user.clone(),
        };
        scratch.make_data()?;
        let mut install = words![MARIADB_INSTALL.path()?, "--no-defaults", "--skip-test-db"];
        install.push(option("--datadir=", &scratch.data));
        // Not the common one: when a MariaDB starts there, it removes the temporary tables of
        // others.
        install.push(option("--tmpdir=", &scratch.data));
        install.extend(words!["--auth-root-authentication-method=normal"]);
        install.extend(SMALL.map(OsString::from));
        scratch.run(install)?;
        Ok(scratch.data)
    }
}

impl Program for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    /// Members of a cluster talk to each other on ports of their own.
    fn ports(&self) -> usize {
        if self.galera { 3 } else { 1 }
    }

    fn user(&self) -> Option<&'static str> {
        Some("mysql")
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        let template = place.home.templates.get("mariadb", || self.template(place))?;
        template::copy(&template, place.data())?;
        let welcome = if self.read_only { WELCOME_TO_READ } else { WELCOME };
        let asked = if self.asks_for_certificates { WELCOME_WITH_A_CERTIFICATE } else { "" };
        std::fs::write(place.folder().join("welcome.sql"), format!("{welcome}{asked}"))?;
        if self.tls {
            Certificates::make_for_user(place)?;
        }
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let mut words = words![
            MARIADB.path()?,
            "--no-defaults",
            option("--datadir=", place.data()),
            option("--socket=", &place.data().join("socket")),
            option("--tmpdir=", place.data()),
            option("--init-file=", &place.folder().join("welcome.sql")),
            format!("--port={}", place.port()),
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--max-connections=300",
        ];
        words.extend(SMALL.map(OsString::from));
        if self.tls {
            words.push(option("--ssl-cert=", &place.data().join("certificate.pem")));
            words.push(option("--ssl-key=", &place.data().join("certificate.key")));
            words.push(option("--ssl-ca=", &place.data().join("authority.pem")));
        }
        if self.galera {
            words.push(option("--wsrep-provider=", &GALERA.path()?));
            words.extend(words![
                "--wsrep-on=ON",
                "--wsrep-cluster-address=gcomm://",
                "--wsrep-sst-method=rsync",
                "--binlog-format=ROW",
                "--innodb-autoinc-lock-mode=2",
                format!("--wsrep-node-address=127.0.0.1:{}", place.ports()[1]),
                format!(
                    "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{};\
                     ist.recv_addr=127.0.0.1:{};gcache.size=1M",
                    place.ports()[1],
                    place.ports()[2],
                ),
            ]);
        }
        words.extend(self.settings.iter().map(OsString::from));
        Ok(words)
    }

    fn ask(&self, place: &Place) -> Result<()> {
        let said = wire::mariadb::query(place.port(), "SELECT 1")?;
        if said == ["1"] { Ok(()) } else { bail!("mariadb said {said:?}") }
    }

    fn url(&self, place: &Place) -> String {
        let user = if self.asks_for_certificates { "certified" } else { "lockkeeper" };
        let tls = if self.tls { "?tls=true" } else { "" };
        format!("mariadb://{user}@127.0.0.1:{}/lockkeeper{tls}", place.port())
    }

    fn clock(&self) -> Clock {
        Clock::Preload
    }
}

fn option(name: &str, value: &std::path::Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}
