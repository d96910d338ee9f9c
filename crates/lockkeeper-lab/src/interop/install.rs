//! The libraries that the peers need, fetched once and kept beside cargo's build output.

use crate::server::tool::{JAVA, JAVAC, MAVEN, NODE, NPM, PYTHON};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const REDIS_PY: [(&str, &str); 2] = [
    ("requirements.txt", include_str!("../../interop/redis/redis_py/requirements.txt")),
    ("peer.py", include_str!("../../interop/redis/redis_py/peer.py")),
];
const NODE_REDLOCK: [(&str, &str); 3] = [
    ("package.json", include_str!("../../interop/redis/node_redlock/package.json")),
    ("package-lock.json", include_str!("../../interop/redis/node_redlock/package-lock.json")),
    ("peer.js", include_str!("../../interop/redis/node_redlock/peer.js")),
];
const GO_CONCURRENCY: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../interop/etcd/go/go.mod")),
    ("go.sum", include_str!("../../interop/etcd/go/go.sum")),
    ("main.go", include_str!("../../interop/etcd/go/main.go")),
];

const CURATOR: [(&str, &str); 2] = [
    ("pom.xml", include_str!("../../interop/zookeeper/curator/pom.xml")),
    (
        "src/main/java/Peer.java",
        include_str!("../../interop/zookeeper/curator/src/main/java/Peer.java"),
    ),
];
const KAZOO: [(&str, &str); 2] = [
    ("requirements.txt", include_str!("../../interop/zookeeper/kazoo/requirements.txt")),
    ("peer.py", include_str!("../../interop/zookeeper/kazoo/peer.py")),
];
const PYMEMCACHE: [(&str, &str); 2] = [
    ("requirements.txt", include_str!("../../interop/memcached/pymemcache/requirements.txt")),
    ("peer.py", include_str!("../../interop/memcached/pymemcache/peer.py")),
];
const SHEDLOCK: [(&str, &str); 2] = [
    ("pom.xml", include_str!("../../interop/sql/shedlock/pom.xml")),
    ("src/main/java/Peer.java", include_str!("../../interop/sql/shedlock/src/main/java/Peer.java")),
];
const DISTRIBUTED_LOCK: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("../../interop/sql/distributed_lock/package.toml")),
    ("Cargo.lock", include_str!("../../interop/sql/distributed_lock/package.lock")),
    ("src/main.rs", include_str!("../../interop/sql/distributed_lock/main.rs")),
];
const REDSYNC: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../interop/redis/redsync/go.mod")),
    ("go.sum", include_str!("../../interop/redis/redsync/go.sum")),
    ("main.go", include_str!("../../interop/redis/redsync/main.go")),
];
const REDISSON: [(&str, &str); 2] = [
    ("pom.xml", include_str!("../../interop/redis/redisson/pom.xml")),
    (
        "src/main/java/Peer.java",
        include_str!("../../interop/redis/redisson/src/main/java/Peer.java"),
    ),
];

/// The folder in which libraries of other languages are installed.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    /// Only one installation runs at a time.
    busy: Mutex<()>,
}

impl Cache {
    /// `interop` in cargo's target directory, which also contains this program.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open() -> Result<Self> {
        let program = std::env::current_exe()?;
        let target = program.parent().and_then(Path::parent).context("no target directory")?;
        let root = target.join("interop");
        fs::create_dir_all(&root)
            .with_context(|| format!("cannot make the folder {}", root.display()))?;
        Ok(Self { root, busy: Mutex::default() })
    }

    /// The program that locks with redis-py.
    ///
    /// # Errors
    /// When there is no Python, or redis-py cannot be installed.
    pub fn redis_py(&self) -> Result<Command> {
        let folder = self.installed("redis_py", &REDIS_PY, &install_python)?;
        let mut command = python(&folder);
        command.arg(folder.join("peer.py"));
        Ok(command)
    }

    /// The program that locks with node-redlock.
    ///
    /// # Errors
    /// When there is no Node, or node-redlock cannot be installed.
    pub fn node_redlock(&self) -> Result<Command> {
        let folder = self.installed("node_redlock", &NODE_REDLOCK, &|folder| {
            let quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
            run(Command::new(NPM.path()?).arg("ci").args(quiet).current_dir(folder))
        })?;
        let mut command = Command::new(NODE.path()?);
        command.arg(folder.join("peer.js"));
        Ok(command)
    }

    /// The program that locks with Curator.
    ///
    /// # Errors
    /// When there is no Java or Maven, or Curator cannot be installed.
    pub fn curator(&self) -> Result<Command> {
        let folder = self.installed("curator", &CURATOR, &|folder| {
            // Maven needs the compiler, but its own error message is less clear.
            JAVAC.path()?;
            let package = ["--quiet", "--batch-mode", "package"];
            run(Command::new(MAVEN.path()?).args(package).current_dir(folder))
        })?;
        let mut classes = folder.join("target/classes").into_os_string();
        classes.push(":");
        classes.push(folder.join("target/libraries/*"));
        let mut command = Command::new(JAVA.path()?);
        command.args(["-XX:+UseSerialGC", "-Xmx128m", "-Xshare:auto", "-cp"]);
        command.arg(classes).arg("Peer");
        Ok(command)
    }

    /// The program that locks with ShedLock, in a table.
    ///
    /// # Errors
    /// When there is no Java or Maven, or ShedLock cannot be installed.
    pub fn shedlock(&self) -> Result<Command> {
        let folder = self.installed("shedlock", &SHEDLOCK, &|folder| {
            // Maven needs the compiler, but its own error message is less clear.
            JAVAC.path()?;
            let package = ["--quiet", "--batch-mode", "package"];
            run(Command::new(MAVEN.path()?).args(package).current_dir(folder))
        })?;
        let (classes, libraries) = (folder.join("target/classes"), folder.join("target/libraries"));
        let mut command = Command::new(JAVA.path()?);
        command.args(["-XX:+UseSerialGC", "-Xmx128m", "-Xshare:auto", "-cp"]);
        command.arg(format!("{}:{}/*", classes.display(), libraries.display())).arg("Peer");
        Ok(command)
    }

    /// The program that locks with the crate `distributed-lock`.
    ///
    /// # Errors
    /// When it cannot be fetched or built.
    pub fn distributed_lock(&self) -> Result<Command> {
        let folder = self.installed("distributed_lock", &DISTRIBUTED_LOCK, &|folder| {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let build = ["build", "--quiet", "--release", "--locked"];
            // Not into the folder that cargo builds us in.
            run(Command::new(cargo)
                .args(build)
                .env("CARGO_TARGET_DIR", "target")
                .current_dir(folder))
        })?;
        Ok(Command::new(folder.join("target/release/distributed-lock-peer")))
    }

    /// The program that locks with kazoo.
    ///
    /// # Errors
    /// When there is no Python, or kazoo cannot be installed.
    pub fn kazoo(&self) -> Result<Command> {
        let folder = self.installed("kazoo", &KAZOO, &install_python)?;
        let mut command = python(&folder);
        command.arg(folder.join("peer.py"));
        Ok(command)
    }

    /// The program that locks with a plain `add` of pymemcache.
    ///
    /// # Errors
    /// When there is no Python, or pymemcache cannot be installed.
    pub fn pymemcache(&self) -> Result<Command> {
        let folder = self.installed("pymemcache", &PYMEMCACHE, &install_python)?;
        let mut command = python(&folder);
        command.arg(folder.join("peer.py"));
        Ok(command)
    }

    /// The program that locks with Go's concurrency package for etcd.
    ///
    /// # Errors
    /// When there is no Go, or the package cannot be fetched.
    pub fn go_concurrency(&self) -> Result<Command> {
        let folder = self.installed("go_concurrency", &GO_CONCURRENCY, &build_go)?;
        Ok(Command::new(folder.join("peer")))
    }

    /// The program that locks with redsync.
    ///
    /// # Errors
    /// When there is no Go, or redsync cannot be fetched.
    pub fn redsync(&self) -> Result<Command> {
        let folder = self.installed("redsync", &REDSYNC, &build_go)?;
        Ok(Command::new(folder.join("peer")))
    }

    /// The program that locks with Redisson.
    ///
    /// # Errors
    /// When there is no Java or Maven, or Redisson cannot be fetched.
    pub fn redisson(&self) -> Result<Command> {
        let folder = self.installed("redisson", &REDISSON, &|folder| {
            // Maven needs the compiler, but its own error message is less clear.
            JAVAC.path()?;
            let package = ["--quiet", "--batch-mode", "package"];
            run(Command::new(MAVEN.path()?).args(package).current_dir(folder))
        })?;
        let (classes, libraries) = (folder.join("target/classes"), folder.join("target/libraries"));
        let mut command = Command::new(JAVA.path()?);
        // Many short-lived processes: the optimising compiler takes longer than they run.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp"]);
        command.arg(format!("{}:{}/*", classes.display(), libraries.display())).arg("Peer");
        Ok(command)
    }

    /// The folder `name` with `files` in it, on which `install` was run. It runs once, and again
    /// when a file has changed.
    ///
    /// # Errors
    /// The error of `install`.
    pub fn installed(
        &self,
        name: &str,
        files: &[(&str, &str)],
        install: &dyn Fn(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let _alone = self.busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let other_runs = File::create(self.root.join("busy"))?;
        other_runs.lock()?;
        let folder = self.root.join(name);
        let done = folder.join("installed");
        let same = |(file, text): &(&str, &str)| {
            fs::read_to_string(folder.join(file)).is_ok_and(|found| found == *text)
        };
        if done.exists() && files.iter().all(same) {
            return Ok(folder);
        }
        // Also removes what an interrupted installation left there.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        for (file, text) in files {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().context("no folder")?)?;
            fs::write(file, text)?;
        }
        install(&folder).with_context(|| format!("{name} cannot be installed"))?;
        fs::write(done, "")?;
        Ok(folder)
    }
}

fn build_go(folder: &Path) -> Result<()> {
    run(Command::new("go").args(["build", "-o", "peer", "."]).current_dir(folder))
}

fn install_python(folder: &Path) -> Result<()> {
    run(Command::new(PYTHON.path()?).args(["-m", "venv", "environment"]).current_dir(folder))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let exactly = ["--no-deps", "--requirement", "requirements.txt"];
    run(python(folder).args(pip).args(exactly).current_dir(folder))
}

fn python(folder: &Path) -> Command {
    Command::new(folder.join("environment/bin/python"))
}

fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        // Maven prints its errors to standard output.
        let said =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        bail!("{shown} failed ({}): {}", output.status, said.concat().trim());
    }
    Ok(())
}
