//! What is said of the package, and what is run when it is installed and removed.

use crate::stage::Stage;
use crate::{VERSION, said};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Puts the control files on the stage, on which everything else is already.
pub(crate) fn put(stage: &Stage, binary: &Path, architecture: &str) -> Result<()> {
    let files = stage.files()?;
    let mut size = 0;
    for file in &files {
        size += std::fs::metadata(stage.folder().join(file))?.len().div_ceil(1024);
    }
    let sums = said(Command::new("md5sum").args(&files).current_dir(stage.folder()))?;
    let depends = dependencies(&std::fs::read(binary)?)?;
    let maintainer = maintainer();
    let control = include_str!("../debian/control")
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@MAINTAINER@", &maintainer)
        .replace("@SIZE@", &size.to_string())
        .replace("@DEPENDS@", &depends);
    ensure!(!control.contains('@') || maintainer.contains('@'), "a field is left open");
    stage.put("DEBIAN/control", control)?;
    stage.put("DEBIAN/md5sums", sums)?;
    stage.put_program("DEBIAN/postinst", include_str!("../debian/postinst"))?;
    stage.put_program("DEBIAN/postrm", include_str!("../debian/postrm"))
}

/// Who made this package, by the variables that Debian's own tools read.
fn maintainer() -> String {
    let variable = |name, other: &str| std::env::var(name).unwrap_or_else(|_| other.to_owned());
    format!(
        "{} <{}>",
        variable("DEBFULLNAME", "lockkeeper"),
        variable("DEBEMAIL", "root@localhost")
    )
}

/// The packages without which the binary, or the installation, does not run.
fn dependencies(binary: &[u8]) -> Result<String> {
    let libc = newest_libc(binary).context("the binary says of no C library which it needs")?;
    let mut depends = format!("libc6 (>= 2.{libc})");
    if finds(binary, b"libgcc_s.so.1") {
        depends += ", libgcc-s1";
    }
    // `groupadd`.
    Ok(depends + ", passwd")
}

fn finds(binary: &[u8], text: &[u8]) -> bool {
    binary.windows(text.len()).any(|window| window == text)
}

/// The newest version 2.x of the GNU C library of which the binary uses a symbol: the dynamic
/// linker reads these names, so they are in every binary, stripped or not.
fn newest_libc(binary: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"GLIBC_2.";
    let places = binary.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let minor = |at: usize| {
        let digits = binary[at + MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
    };
    places.filter_map(|(at, _)| minor(at)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_that_a_binary_names_is_needed() {
        let binary = b"\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_PRIVATE\0libgcc_s.so.1\0";
        assert_eq!(dependencies(binary).unwrap(), "libc6 (>= 2.34), libgcc-s1, passwd");
        assert!(dependencies(b"static").is_err());
    }
}
