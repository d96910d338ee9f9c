//! The packages that are published: made, unpacked elsewhere, and compiled from what is in them.

use crate::{announce, cargo};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is published, and with which features it is compiled here: those that an earlier step has
/// checked, so that the dependencies need not be compiled once more.
const PUBLISHED: &[(&str, &[&str])] = &[
    ("lockkeeper", &["--features", "full"]),
    ("lockkeeper-cli", &["--no-default-features", "--features", "redis"]),
    ("lockkeeper-contract", &[]),
];

/// What every package must bring along.
const ENCLOSED: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Everything that `cargo publish` does before it uploads; see `unpacked` for the verification.
pub(crate) fn check() -> Result<()> {
    announce("packages, as they would be published");
    let dry = ["publish", "--workspace", "--dry-run", "--no-verify", "--allow-dirty"];
    cargo(&[&dry[..], &["--quiet"]].concat())?;
    let mut package = vec!["package", "--no-verify", "--allow-dirty", "--quiet"];
    for (name, _) in PUBLISHED {
        package.extend(["--package", name]);
    }
    cargo(&package)?;
    let folder = unpacked()?;
    let manifest = folder.join("Cargo.toml").display().to_string();
    let target = target().display().to_string();
    for (name, features) in PUBLISHED {
        announce(&format!("{name}, compiled from its package"));
        let check = ["check", "--manifest-path", &manifest, "--target-dir", &target];
        cargo(&[&check[..], &["--package", name], features].concat())?;
    }
    Ok(())
}

/// The folder into which the packages were unpacked, as a workspace of its own.
///
/// Cargo would verify by itself (without `--no-verify`), but with all dependencies built anew,
/// which takes minutes. In this workspace each package depends on the others as unpacked, and the
/// profiles are those of the repository, so that dependencies that were compiled before are used.
fn unpacked() -> Result<PathBuf> {
    let root = root();
    let version = env!("CARGO_PKG_VERSION");
    let folder = target().join("package").join("unpacked");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let mut members = Vec::new();
    let mut patches = String::new();
    for (name, _) in PUBLISHED {
        let package = format!("{name}-{version}");
        let file = target().join("package").join(format!("{package}.crate"));
        let tar = Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(&folder).status();
        ensure!(tar.context("cannot run tar")?.success(), "cannot unpack {}", file.display());
        for enclosed in ENCLOSED {
            let there = folder.join(&package).join(enclosed).is_file();
            ensure!(there, "the package {name} does not contain {enclosed}");
        }
        patches += &format!("{name} = {{ path = {package:?} }}\n");
        members.push(package);
    }
    let ours = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let sections = ours.split("\n[").skip(1).filter(|section| section.starts_with("profile."));
    let profiles: String = sections.map(|section| format!("[{section}\n")).collect();
    std::fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[patch.crates-io]\n{patches}\n{profiles}"
        ),
    )?;
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    Ok(folder)
}

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| root().join("target"))
}
