//! The folder that contains everything of a lab, and the warden that removes it.

use super::ports::Ports;
use super::template::Templates;
use anyhow::{Context, Result};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Blocks on a pipe whose other end only this process has open.
///
/// Rejected: a parent-death signal comes when the thread that started a server ends, which in tests
/// is soon; and a destructor does not run when the process is killed.
const WARDEN: &str = include_str!("warden.sh");

#[derive(Debug)]
pub(crate) struct Home {
    root: PathBuf,
    warden: Child,
    /// `None` only during drop.
    pipe: Option<ChildStdin>,
    folders: AtomicU32,
    pub(crate) ports: Ports,
    pub(crate) templates: Templates,
}

impl Home {
    pub(crate) fn open() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("lockkeeper-lab-").tempdir()?;
        // Databases run as another user and must be able to reach their own folders.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711))?;
        std::fs::write(folder.path().join("open"), "")?;
        let mut warden = Command::new("/bin/sh")
            .args(["-c", WARDEN, "warden"])
            .arg(folder.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start the warden of the servers")?;
        let pipe = warden.stdin.take();
        Ok(Self {
            root: folder.keep(),
            warden,
            pipe,
            folders: AtomicU32::new(1),
            ports: Ports::default(),
            templates: Templates::default(),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// While this file exists, servers may be started.
    pub(crate) fn marker(&self) -> PathBuf {
        self.root.join("open")
    }

    pub(crate) fn new_folder(&self, name: &str) -> Result<PathBuf> {
        let number = self.folders.fetch_add(1, Ordering::Relaxed);
        let folder = self.root.join(format!("{name}-{number}"));
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(folder)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.warden.wait();
    }
}
