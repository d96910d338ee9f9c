//! `cargo xtask deb`: a Debian package of the command.

use crate::cargo;
use crate::package::{root, target};
use anyhow::Result;
use lockkeeper_deb::Compression;

/// Builds the command as it is handed to others, and a package of it.
pub(crate) fn build() -> Result<()> {
    cargo(&["build", "--profile", "dist", "--package", "lockkeeper-cli"])?;
    let binary = target().join("dist").join("lockkeeper");
    let out = target().join("debian");
    let package = lockkeeper_deb::build(&binary, root(), &out, Compression::Small)?;
    println!("{}", package.display());
    Ok(())
}
