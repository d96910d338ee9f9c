//! `exporter` on stores with a server, which goes away under it and comes back.

use super::{eventually, hold, lockkeeper};
use anyhow::{Context, Result, ensure};
use lockkeeper_lab::server::Server;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

/// A process that does not outlive its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn exported(server: &Server) -> Result<()> {
    let words = ["exporter", "--listen", "127.0.0.1:0", "--every", "200ms", "--prefix", "cron/"];
    let mut exporter = Ended(lockkeeper(server, &words).spawn()?);
    let mut lines = BufReader::new(exporter.0.stderr.take().context("a pipe")?).lines();
    let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening at")));
    let line = line.context("it ended")??;
    let address = line.split("http://").nth(1).context("a URL")?.trim_end_matches("/metrics");
    let address = address.to_owned();
    // To the end: a full pipe would stop it.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    let shows = |wanted: &'static str| -> Result<()> {
        eventually(wanted, || Ok(page(&address)?.lines().any(|line| line == wanted)));
        Ok(())
    };
    shows("lockkeeper_store_held{prefix=\"cron/\"} 0")?;
    let holder = hold(server, "cron/night", &server.folder().join("held"), &["--ttl", "600s"])?;
    let _holder = Ended(holder);
    shows("lockkeeper_store_held{prefix=\"cron/\"} 1")?;
    server.kill()?;
    shows("lockkeeper_up 0")?;
    ensure!(!page(&address)?.contains("lockkeeper_store_"), "it tells what it does not know");
    server.restart()?;
    shows("lockkeeper_up 1")?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(exporter.0.id())?);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    let status = exporter.0.wait()?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}

fn page(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    Ok(answer)
}
