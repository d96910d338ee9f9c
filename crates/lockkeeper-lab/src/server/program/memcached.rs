//! memcached.

use super::tls::Certificates;
use super::{Clock, Program};
use crate::server::place::{Place, words};
use crate::server::plan::Plan;
use crate::server::tool::MEMCACHED;
use crate::server::wire;
use anyhow::{Result, bail};
use std::ffi::OsString;

/// A memcached server. It has no data to keep.
#[derive(Debug, Clone, Default)]
pub struct Memcached {
    /// Words of the command line, beside ours.
    options: Vec<&'static str>,
    /// The user and the password that it asks for.
    login: Option<(&'static str, &'static str)>,
    tls: bool,
    asks_for_certificates: bool,
}

impl Plan<Memcached> {
    /// Adds words to its command line: `-M`, or `-m` and `2`.
    pub fn options(mut self, words: &[&'static str]) -> Self {
        self.program.options.extend(words);
        self
    }

    /// Lets in who knows this user and password.
    pub fn login(mut self, user: &'static str, password: &'static str) -> Self {
        self.program.login = Some((user, password));
        self
    }

    /// Uses TLS, with its [`Certificates`].
    pub fn tls(mut self) -> Self {
        self.program.tls = true;
        self
    }

    /// Uses TLS, and accepts only clients with a certificate.
    pub fn client_certificates(mut self) -> Self {
        self.program.asks_for_certificates = true;
        self.tls()
    }
}

impl Memcached {
    /// The port without TLS, on which the lab asks.
    fn plain_port(&self, place: &Place) -> u16 {
        if self.tls { place.ports()[1] } else { place.port() }
    }
}

impl Program for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn ports(&self) -> usize {
        1 + usize::from(self.tls)
    }

    fn user(&self) -> Option<&'static str> {
        // With TLS it reads files that belong to the user who runs the lab.
        (!self.tls).then_some("memcache")
    }

    fn prepare(&self, place: &Place) -> Result<()> {
        if let Some((user, password)) = self.login {
            std::fs::write(place.folder().join("users"), format!("{user}:{password}\n"))?;
        }
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        let mut command = words![MEMCACHED.path()?, "-U", "0", "-m", "64"];
        let port = place.port();
        if self.tls {
            let made = Certificates::make(place)?;
            let verify = if self.asks_for_certificates { 2 } else { 0 };
            let files = [&made.certificate, &made.key, &made.authority].map(|it| it.display());
            let [certificate, key, authority] = files;
            command.extend(words![
                "-u",
                "root",
                "-Z",
                "-o",
                format!(
                    "ssl_chain_cert={certificate},ssl_key={key},ssl_ca_cert={authority},\
                     ssl_verify_mode={verify}"
                ),
                "-l",
                format!("127.0.0.1:{port},notls:127.0.0.1:{}", self.plain_port(place))
            ]);
        } else {
            command.extend(words!["-l", "127.0.0.1", "-p", port.to_string()]);
        }
        if self.login.is_some() {
            command.extend(words!["-Y", place.folder().join("users")]);
        }
        command.extend(self.options.iter().map(OsString::from));
        Ok(command)
    }

    fn ask(&self, place: &Place) -> Result<()> {
        let login = self.login.map_or_else(String::new, |(user, password)| {
            let login = format!("{user} {password}");
            format!("set auth 0 -1 {}\r\n{login}\r\n", login.len())
        });
        let said = wire::line::ask(self.plain_port(place), &format!("{login}version\r\nquit\r\n"))?;
        if said.contains("VERSION ") { Ok(()) } else { bail!("memcached said {said:?}") }
    }

    fn url(&self, place: &Place) -> String {
        let login =
            self.login.map_or_else(String::new, |(user, password)| format!("{user}:{password}@"));
        let tls = if self.tls { "?tls=true" } else { "" };
        format!("memcached://{login}127.0.0.1:{}{tls}", place.port())
    }

    fn clock(&self) -> Clock {
        Clock::Unsupported("it counts time with the monotonic clock")
    }
}
