//! Where one server runs: its folder, its ports, its user.

use super::home::Home;
use super::process;
use super::tool::SETPRIV;
use anyhow::{Context, Result};
use nix::unistd::{User, chown, geteuid};
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a [`Program`](super::Program) is told about the place it runs in.
#[derive(Debug)]
pub struct Place {
    pub(crate) home: Arc<Home>,
    pub(crate) folder: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) ports: Vec<u16>,
    /// `None` to run as the current user.
    pub(crate) user: Option<User>,
}

impl Place {
    /// Its own folder, with its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of its data, which it may write to.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its ports; the first is the one clients use.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The port that clients use.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Gives a folder inside its own to the user it runs as.
    pub(crate) fn own(&self, folder: &Path) -> Result<()> {
        if let Some(user) = &self.user {
            chown(folder, Some(user.uid), Some(user.gid))
                .with_context(|| format!("cannot give {} away", folder.display()))?;
        }
        Ok(())
    }

    /// Creates the data folder if it does not exist.
    pub(crate) fn make_data(&self) -> Result<()> {
        std::fs::create_dir_all(&self.data)
            .with_context(|| format!("cannot make the folder {}", self.data.display()))?;
        std::fs::set_permissions(&self.data, Permissions::from_mode(0o700))?;
        self.own(&self.data)
    }

    /// Keeps the data folder itself: it may be a mount point or belong to the caller.
    pub(crate) fn empty_data(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.data)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Copies the data to a folder beside it; replaces an earlier copy.
    pub(crate) fn copy_data(&self) -> Result<()> {
        let copy = self.copy();
        if copy.exists() {
            std::fs::remove_dir_all(&copy)?;
        }
        copy_folder(&self.data, &copy)
    }

    /// Copies the copy back to the data folder, which must be empty.
    pub(crate) fn restore_data(&self) -> Result<()> {
        copy_folder(&self.copy(), &self.data).context("there is no copy of the data")
    }

    fn copy(&self) -> PathBuf {
        self.folder.join("copy")
    }

    /// The command, run as its user. `setpriv` execs the command, so the process id stays the same.
    pub(crate) fn as_user(&self, words: Vec<OsString>) -> Result<Vec<OsString>> {
        let Some(user) = &self.user else {
            return Ok(words);
        };
        let mut all = vec![SETPRIV.path()?.into_os_string()];
        all.extend(
            [format!("--reuid={}", user.uid), format!("--regid={}", user.gid)].map(Into::into),
        );
        all.extend(["--clear-groups", "--"].map(Into::into));
        all.extend(words);
        Ok(all)
    }

    /// Runs a command that prepares the data, as the server's user.
    pub(crate) fn run(&self, words: Vec<OsString>) -> Result<()> {
        process::run(&self.home, &self.folder, &self.as_user(words)?)
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (entry, target) = match entry {
            Ok(entry) => (entry.path(), to.join(entry.file_name())),
            Err(error) => return Err(error.into()),
        };
        if entry.is_dir() {
            copy_folder(&entry, &target)?;
        } else {
            std::fs::copy(&entry, &target)?;
        }
    }
    Ok(())
}

/// The user for a program that refuses to run as root: its own, or nobody.
pub(crate) fn user_instead_of_root(name: &str) -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    for name in [name, "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    anyhow::bail!("neither {name} nor nobody is a user here, and as root it does not run")
}

/// A command line from anything that converts to a word.
macro_rules! words {
    ($($word:expr),* $(,)?) => { vec![$(::std::ffi::OsString::from($word)),*] };
}
pub(crate) use words;
