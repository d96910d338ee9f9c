//! The folder that becomes the package.

use crate::said;
use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with the files of the package; removed when dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: PathBuf,
}

impl Stage {
    pub(crate) fn new(out: &Path) -> Result<Self> {
        let folder = out.join(format!("stage-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let stage = Self { folder };
        // The folders are part of the package, with their modes.
        stage.allow(&stage.folder, 0o755)?;
        Ok(stage)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that everyone may read.
    pub(crate) fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(path, bytes, 0o644)
    }

    /// Writes a file that everyone may run.
    pub(crate) fn put_program(&self, path: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(path, bytes, 0o755)
    }

    /// Writes a file as `path` with `.gz` behind it, the same bytes at every time.
    pub(crate) fn put_compressed(&self, path: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.put(path, bytes)?;
        said(Command::new("gzip").args(["-9", "--no-name"]).arg(self.folder.join(path)))?;
        Ok(())
    }

    fn put_with(&self, path: &str, bytes: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let file = self.folder.join(path);
        let missing: Vec<_> =
            file.ancestors().skip(1).take_while(|above| !above.exists()).collect();
        for folder in missing.into_iter().rev() {
            std::fs::create_dir(folder)?;
            self.allow(folder, 0o755)?;
        }
        std::fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
        self.allow(&file, mode)
    }

    /// Whatever the umask of this process is.
    fn allow(&self, path: &Path, mode: u32) -> Result<()> {
        Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
    }

    /// The files so far, as paths within the package, in order.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let (mut folders, mut files) = (vec![self.folder.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => files.push(path.strip_prefix(&self.folder)?.to_owned()),
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What is left lies beside the packages, where it is seen.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
