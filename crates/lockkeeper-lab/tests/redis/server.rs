//! A Redis of the test's own.

use anyhow::{Context, Result, bail};
use lockkeeper_lab::workload::Breakable;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Keeps every write, so that a kill loses nothing; ends when dropped.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    folder: tempfile::TempDir,
    child: Child,
}

impl Server {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
            let address = free.expect("a free port");
            let mut child = launch(address, &folder).expect("redis-server starts");
            // Someone else may have got the port in between.
            match answers(address, &mut child) {
                Ok(()) => return Self { address, folder, child },
                Err(_) => drop(child.kill().and_then(|()| child.wait())),
            }
        }
        panic!("redis-server does not start");
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status()?;
        if !status.success() {
            bail!("redis-server gets no signals");
        }
        Ok(())
    }
}

fn launch(address: SocketAddr, folder: &tempfile::TempDir) -> std::io::Result<Child> {
    Command::new("redis-server")
        .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
}

fn answers(address: SocketAddr, child: &mut Child) -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("redis-server ended: {status}");
        }
        let ping = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
            let mut answer = [0; 7];
            stream.read_exact(&mut answer)?;
            Ok(&answer == b"+PONG\r\n")
        };
        if ping().unwrap_or(false) {
            return Ok(());
        }
        if Instant::now() > patience {
            bail!("redis-server does not answer");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Breakable for Server {
    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ()).context("it cannot be waited for")
    }

    fn restart(&mut self) -> Result<()> {
        self.child = launch(self.address, &self.folder)?;
        answers(self.address, &mut self.child)
    }

    fn restart_empty(&mut self) -> Result<()> {
        self.kill()?;
        std::fs::remove_dir_all(self.folder.path().join("appendonlydir"))?;
        self.restart()
    }

    fn pause(&mut self) -> Result<()> {
        self.signal("-STOP")
    }

    fn resume(&mut self) -> Result<()> {
        self.signal("-CONT")
    }

    fn clock_ahead(&mut self, _: Duration) -> Result<()> {
        bail!("its clock is the machine's")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
