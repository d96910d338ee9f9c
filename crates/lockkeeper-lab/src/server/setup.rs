//! Installs what is missing, with the distribution's package manager.

use super::kind::Kind;
use super::tool::{EXTRAS, LANGUAGES, PYTHON, Tool};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// Keeps the packages from starting services and from creating their own database; removes both of
/// its files afterwards, also on failure.
const INSTALL: &str = include_str!("install.sh");

/// Installs what is missing; prints one line if nothing is.
///
/// # Errors
/// When it may not install, or does not know how to on this system: the error then contains the
/// command, or the packages.
pub fn setup() -> Result<()> {
    let absent = absent();
    if absent.is_empty() {
        println!("everything that the tests use is installed");
        return Ok(());
    }
    let packages: BTreeSet<&str> = absent.iter().map(|tool| tool.package).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let listed = packages.join(" ");
    if !Path::new("/usr/bin/apt-get").exists() {
        let files: Vec<&str> = absent.iter().map(|tool| tool.file).collect();
        bail!(
            "missing: {}. They are installed for you on Debian and its children only, where the \
             packages are called {listed}; install what your distribution calls them",
            files.join(", ")
        );
    }
    let Some(mut command) = as_root() else {
        bail!(
            "missing: {listed}. To install them takes root, or a sudo that asks no password. \
             Run: sudo apt-get install --no-install-recommends {listed}"
        );
    };
    println!("installing {listed}");
    let status = command
        .args(["sh", "-c", INSTALL, "install"])
        .args(&packages)
        .stdin(Stdio::null())
        .status()
        .context("cannot run apt-get")?;
    if !status.success() {
        bail!("apt-get could not install {listed}; what it said is above");
    }
    let left: Vec<&str> = self::absent().iter().map(|tool| tool.file).collect();
    if !left.is_empty() {
        bail!("installed {listed}, and still cannot find {}", left.join(", "));
    }
    Ok(())
}

fn absent() -> Vec<Tool> {
    let tools = Kind::ALL.iter().flat_map(|kind| kind.tools()).chain(EXTRAS).chain(LANGUAGES);
    tools.filter(|tool| is_absent(tool)).copied().collect()
}

fn is_absent(tool: &Tool) -> bool {
    match tool.find() {
        None => true,
        // Debian's Python comes without the module that creates environments.
        Some(python) if *tool == PYTHON => {
            let asked = Command::new(python)
                .args(["-c", "import ensurepip, venv"])
                .stderr(Stdio::null())
                .status();
            !asked.is_ok_and(|status| status.success())
        }
        Some(_) => false,
    }
}

/// The beginning of a command that runs as root.
fn as_root() -> Option<Command> {
    if nix::unistd::geteuid().is_root() {
        return Some(Command::new("env"));
    }
    let asked = Command::new("sudo").args(["-n", "true"]).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("sudo");
    command.arg("-n");
    Some(command)
}
