//! A separate disk for one server, which can be filled or made to hang.

use super::faults::Unsupported;
use super::kind::REQUIRE;
use anyhow::{Context, Result};
use nix::unistd::geteuid;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Room for the logs that etcd and ZooKeeper preallocate. The image is sparse.
const IMAGE: u64 = 512 << 20;

/// A file system mounted over the data folder.
#[derive(Debug)]
pub(crate) struct Disk {
    mount: PathBuf,
    /// The image file of the file system, unless it is in memory.
    image: Option<PathBuf>,
}

impl Disk {
    /// In memory, with this many bytes: it can be filled.
    pub(crate) fn mount(folder: &Path, bytes: u64) -> Result<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o"]).arg(format!("size={bytes},mode=0700"));
        run(mount.arg("lockkeeper-lab").arg(folder), "a disk that can be filled")?;
        Ok(Self { mount: folder.to_owned(), image: None })
    }

    /// In the file `image`: it can hang. A file system in memory cannot be frozen.
    pub(crate) fn mount_image(folder: &Path, image: &Path) -> Result<Self> {
        const WHAT: &str = "a disk that can hang";
        File::create(image)?.set_len(IMAGE)?;
        // Without a journal, so that only the server's own writes reach the disk.
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-m", "0", "-O", "^has_journal"]);
        run(make.args(["-E", "lazy_itable_init=1,root_owner=0:0"]).arg(image), WHAT)?;
        let mut mount = Command::new("mount");
        // Without access times, so that reading does not write.
        run(mount.args(["-o", "loop,noatime"]).arg(image).arg(folder), WHAT)?;
        let disk = Self { mount: folder.to_owned(), image: Some(image.to_owned()) };
        // Some servers insist on an empty folder.
        std::fs::remove_dir(folder.join("lost+found"))?;
        Ok(disk)
    }

    /// From now on every writer blocks, and cannot even be killed.
    pub(crate) fn hang(&self) -> Result<()> {
        if self.image.is_none() {
            return Err(Unsupported::new("a disk in memory cannot hang").into());
        }
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.mount), "a disk that can hang")
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.mount), "a disk that can hang")
    }

    /// As [`go_on`](Self::go_on), but also fine when the disk does not hang.
    pub(crate) fn go_on_if_it_hangs(&self) {
        if self.image.is_some() {
            let mut thaw = Command::new("fsfreeze");
            let _ = thaw.arg("--unfreeze").arg(&self.mount).stderr(Stdio::null()).status();
        }
    }

    pub(crate) fn fill(&self) -> Result<()> {
        let mut file = File::options().create(true).append(true).open(self.filler())?;
        // Ever smaller pieces, so that no space is left.
        for size in [1 << 20, 1 << 12, 1] {
            let piece = vec![b'x'; size];
            loop {
                match file.write_all(&piece) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("cannot fill the disk"),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn free(&self) -> Result<()> {
        std::fs::remove_file(self.filler()).context("the disk was not filled")
    }

    fn filler(&self) -> PathBuf {
        self.mount.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If it were unmounted while it hangs, it would stay for ever, out of reach.
        self.go_on_if_it_hangs();
        let _ = Command::new("umount").arg("-l").arg(&self.mount).stderr(Stdio::null()).status();
    }
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            return Err(Unsupported::new(format!("{what} takes {name}: {error}")).into());
        }
    };
    if !output.status.success() {
        return Err(Unsupported::new(format!(
            "{what} takes the right to mount, which root has: {name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
        .into());
    }
    Ok(())
}

/// Why a test that makes a disk hang must be reported as ignored: the missing rights, if any.
///
/// `None` also for root if servers are required: the test then runs, and fails with the reason.
#[must_use]
pub fn cannot_hang() -> Option<Unsupported> {
    let required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
    if required && geteuid().is_root() {
        return None;
    }
    try_to_hang().err().map(|error| Unsupported::new(error.to_string()))
}

fn try_to_hang() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("lockkeeper-lab-").tempdir()?;
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount)?;
    let disk = Disk::mount_image(&mount, &folder.path().join("image"))?;
    disk.hang()?;
    disk.go_on()
}
