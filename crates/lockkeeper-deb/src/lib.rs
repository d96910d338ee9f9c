//! Makes a Debian package of the `lockkeeper` command, from a binary that is built already.
//!
//! Nothing is needed but what every Debian machine has: `dpkg-deb`, `gzip` and `md5sum`. What is in
//! the package, and where, is in `contents`; what is said of it, in `control`. What is run when it
//! is installed and removed is in the folder `debian` of this crate.

mod contents;
mod control;
mod stage;

use anyhow::{Context, Result, ensure};
use stage::Stage;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the package: that of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The file of the machine-wide store.
pub const STORE: &str = "/var/lib/lockkeeper/locks.db";

/// How small the package is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As small as `dpkg-deb` makes it.
    Small,
    /// Made quickly, to be looked at and thrown away.
    Quick,
}

/// Makes a package of `binary` in the folder `out`, and returns its path.
///
/// The binary goes into the package as it is: strip it before. `repository` is where the licences,
/// the changelog and the documentation are. Manual pages and completions are asked of the binary,
/// so it must run on this machine.
///
/// # Errors
/// What is missing, or what the programs that are used said.
pub fn build(
    binary: &Path,
    repository: &Path,
    out: &Path,
    compression: Compression,
) -> Result<PathBuf> {
    let architecture = said(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let stage = Stage::new(out)?;
    contents::put(&stage, binary, repository)?;
    control::put(&stage, binary, architecture)?;
    let package = out.join(format!("lockkeeper_{VERSION}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    if compression == Compression::Quick {
        dpkg.args(["-Zgzip", "-z1"]);
    }
    dpkg.args(["--root-owner-group", "--build"]).arg(stage.folder()).arg(&package);
    said(&mut dpkg)?;
    Ok(package)
}

/// What a program prints, if it succeeds.
fn said(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {complaint}");
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed no text"))
}
