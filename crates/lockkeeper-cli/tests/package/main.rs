//! The Debian package: what is in it, and that it can be installed, used by several users, and
//! removed.
//!
//! Where it cannot be tried, the tests are reported as ignored, with the reason; with
//! `LOCKKEEPER_REQUIRE_SERVERS=1` they fail instead.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_deb::{Compression, VERSION};
use lockkeeper_lab::server::REQUIRE;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;

type Case = (&'static str, fn(&Path) -> Result<()>, fn() -> Option<String>);

const CASES: &[Case] = &[
    ("it_contains_what_it_should_where_it_should", contents, no_dpkg),
    ("its_fields_are_those_of_the_binary", fields, no_dpkg),
    ("it_is_installed_used_by_two_users_and_purged", installed, no_machine),
];

fn main() {
    let arguments = Arguments::from_args();
    let built = Arc::new(Built::default());
    let required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
    let trials = CASES.iter().map(|(name, case, cannot)| {
        let (built, case) = (built.clone(), *case);
        let trial = Trial::test(*name, move || {
            let outcome = built.package().and_then(|package| case(&package));
            outcome.map_err(|error| Failed::from(format!("{error:?}")))
        });
        match cannot().filter(|_| !required) {
            Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
            None => trial,
        }
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(built);
    conclusion.exit();
}

/// Why no package can be made here.
fn no_dpkg() -> Option<String> {
    let found = Command::new("dpkg-deb").arg("--version").output();
    found.is_err().then(|| "no dpkg-deb: it is a part of Debian".to_owned())
}

/// Why no package can be installed here: for that, a machine is needed that is thrown away.
fn no_machine() -> Option<String> {
    no_dpkg().or_else(|| {
        let tried = machine("true", Path::new("/")).output().ok()?;
        let said = String::from_utf8_lossy(&tried.stderr).into_owned();
        let why = "the right to mount, which root has";
        (!tried.status.success()).then(|| format!("installing takes {why}: {}", said.trim()))
    })
}

/// Runs a script as root of a machine that looks like this one, with `package` in `/package.deb`.
///
/// Everything that is changed there is in memory, and gone when the script ends.
fn machine(script: &str, package: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-eu", "-c"]);
    unshare.args([include_str!("machine.sh"), "machine", script]).arg(package);
    unshare
}

/// The package, made once.
#[derive(Default)]
struct Built {
    folder: OnceLock<Result<(TempDir, PathBuf), String>>,
}

impl Built {
    fn package(&self) -> Result<PathBuf> {
        let made = self.folder.get_or_init(|| make().map_err(|error| format!("{error:?}")));
        let (_, package) = made.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(package.clone())
    }
}

/// Of the binary that is tested, stripped as that of a release is.
fn make() -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let binary = folder.path().join("lockkeeper");
    let strip =
        Command::new("strip").arg(env!("CARGO_BIN_EXE_lockkeeper")).arg("-o").arg(&binary).status();
    ensure!(strip.context("cannot run strip, a part of binutils")?.success(), "strip failed");
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let package = lockkeeper_deb::build(&binary, repository, folder.path(), Compression::Quick)?;
    Ok((folder, package))
}

fn dpkg_deb(words: &[&str], package: &Path) -> Result<String> {
    let output = Command::new("dpkg-deb").args(words).arg(package).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn contents(package: &Path) -> Result<()> {
    let listing = dpkg_deb(&["--contents"], package)?;
    // `-rwxr-xr-x root/root 123 2026-01-01 12:00 ./usr/bin/lockkeeper`
    let entries: Vec<_> = listing
        .lines()
        .filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            Some((*words.first()?, *words.get(1)?, words.get(5)?.strip_prefix('.')?))
        })
        .collect();
    for (mode, path) in [
        ("-rwxr-xr-x", "/usr/bin/lockkeeper"),
        ("-rw-r--r--", "/usr/lib/sysusers.d/lockkeeper.conf"),
        ("-rw-r--r--", "/usr/lib/tmpfiles.d/lockkeeper.conf"),
        ("-rw-r--r--", "/usr/share/bash-completion/completions/lockkeeper"),
        ("-rw-r--r--", "/usr/share/doc/lockkeeper/backends/sqlite.md"),
        ("-rw-r--r--", "/usr/share/doc/lockkeeper/changelog.gz"),
        ("-rw-r--r--", "/usr/share/doc/lockkeeper/copyright"),
        ("-rw-r--r--", "/usr/share/doc/lockkeeper/install.md"),
        ("-rw-r--r--", "/usr/share/fish/vendor_completions.d/lockkeeper.fish"),
        ("-rw-r--r--", "/usr/share/man/man1/lockkeeper-run.1.gz"),
        ("-rw-r--r--", "/usr/share/man/man1/lockkeeper.1.gz"),
        ("-rw-r--r--", "/usr/share/zsh/vendor-completions/_lockkeeper"),
    ] {
        let there = entries.contains(&(mode, "root/root", path));
        ensure!(there, "{path} is missing, or not {mode}:\n{listing}");
    }
    for (mode, owner, path) in entries {
        let usual = if path.ends_with('/') { "drwxr-xr-x" } else { mode };
        ensure!(mode == usual && owner == "root/root", "{mode} {owner} {path}");
        // A folder of the machine's state would be removed with the package.
        ensure!(!path.starts_with("/var") && !path.starts_with("/etc"), "{path}");
    }
    Ok(())
}

fn fields(package: &Path) -> Result<()> {
    let field = |name: &str| {
        let said = Command::new("dpkg-deb").arg("--field").arg(package).arg(name).output()?;
        ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        Ok(String::from_utf8(said.stdout)?.trim().to_owned())
    };
    ensure!(field("Package")? == "lockkeeper");
    ensure!(field("Version")? == VERSION);
    ensure!(field("Depends")?.starts_with("libc6 (>= 2."), "{}", field("Depends")?);
    let size: u64 = field("Installed-Size")?.parse()?;
    ensure!(size > 1024, "{size} KiB");
    Ok(())
}

fn installed(package: &Path) -> Result<()> {
    let output = machine(include_str!("installed.sh"), package).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n{said}\n{complaint}", output.status);
    // A script that ended early without an error has shown nothing.
    ensure!(said.ends_with("everything holds\n"), "{said}\n{complaint}");
    Ok(())
}
