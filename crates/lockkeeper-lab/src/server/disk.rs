//! A small disk, to be filled.

use super::faults::Unsupported;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system in memory, mounted over the data folder.
#[derive(Debug)]
pub(crate) struct Disk {
    mount: PathBuf,
}

impl Disk {
    pub(crate) fn mount(folder: &Path, bytes: u64) -> Result<Self> {
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={bytes},mode=0700"))
            .arg("lockkeeper-lab")
            .arg(folder)
            .stdin(Stdio::null())
            .output();
        let output = output.context("cannot run mount")?;
        if !output.status.success() {
            return Err(Unsupported::new(format!(
                "a disk that can be filled takes the right to mount, which root has: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))
            .into());
        }
        Ok(Self { mount: folder.to_owned() })
    }

    pub(crate) fn fill(&self) -> Result<()> {
        let mut file = File::options().create(true).append(true).open(self.filler())?;
        // Ever smaller pieces, so that nothing is left.
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
        let _ = Command::new("umount").arg("-l").arg(&self.mount).stderr(Stdio::null()).status();
    }
}
