//! Nothing is left, however it ends.

use crate::child::PART;
use crate::{Case, eventually};
use anyhow::{Context, Result};
use lockkeeper_lab::server::{Kind, Lab, REQUIRE};
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    ("nothing_is_left_of_a_lab_that_is_dropped", &[Kind::Postgres, Kind::Redis], dropped),
    ("nothing_is_left_of_a_process_that_is_killed", &Kind::ALL, killed),
    ("nothing_is_left_of_a_process_killed_while_it_starts_servers", &Kind::ALL, killed_early),
    ("a_panic_shows_the_log", &[Kind::Redis], panicking),
    ("servers_end_with_their_input", &Kind::ALL, end_of_input),
    ("a_command_finds_the_servers_and_its_code_is_returned", &Kind::ALL, with_servers),
    ("the_server_of_the_run_is_the_shared_one", &[Kind::Redis], shared_of_the_run),
];

/// Processes that work in the folder or name it.
fn processes_of(folder: &Path) -> Vec<String> {
    let name = folder.display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let at = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if at.display().to_string().contains(&name) || words.contains(&name) {
            found.push(format!("{} {words}", entry.file_name().display()));
        }
    }
    found
}

fn is_gone(folder: &Path) {
    eventually("the folder is gone", || Ok(!folder.exists()));
    eventually("the processes are gone", || {
        let left = processes_of(folder);
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(true)
    });
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    assert!(!mounts.contains(&folder.display().to_string()));
}

fn dropped(_: &Lab) -> Result<()> {
    let lab = Lab::open()?;
    let folder = lab.folder().to_owned();
    let redis = lab.redis().start()?;
    let postgres = lab.postgres().start()?;
    let one = postgres.folder().to_owned();
    drop(postgres);
    assert!(!one.exists());
    drop(lab);
    redis.answers()?;
    drop(redis);
    // At once: the last one waits for the warden.
    assert!(!folder.exists());
    is_gone(&folder);
    Ok(())
}

fn start_child() -> Result<(Child, Lines<BufReader<ChildStdout>>, PathBuf)> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(PART, "start")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().context("its output")?;
    let mut lines = BufReader::new(output).lines();
    let folder = PathBuf::from(lines.next().context("a line")??);
    Ok((child, lines, folder))
}

fn killed(_: &Lab) -> Result<()> {
    let (mut child, mut lines, folder) = start_child()?;
    assert_eq!(lines.next().context("all have started")??, "ready");
    let before = processes_of(&folder);
    assert!(before.len() > Kind::ALL.len() + 5, "{before:?}");
    child.kill()?;
    child.wait()?;
    is_gone(&folder);
    Ok(())
}

fn killed_early(_: &Lab) -> Result<()> {
    std::thread::scope(|scope| {
        let threads = [30, 300, 900, 1500].map(|delay| {
            scope.spawn(move || -> Result<()> {
                let (mut child, _lines, folder) = start_child()?;
                std::thread::sleep(Duration::from_millis(delay));
                child.kill()?;
                child.wait()?;
                is_gone(&folder);
                Ok(())
            })
        });
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

fn panicking(_: &Lab) -> Result<()> {
    let output = Command::new(std::env::current_exe()?).env(PART, "panic").output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("on purpose"), "{text}");
    assert!(text.contains("the end of the log of redis"), "{text}");
    assert!(text.contains("Ready to accept connections"), "{text}");
    Ok(())
}

fn end_of_input(_: &Lab) -> Result<()> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .arg("servers")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    for kind in Kind::ALL {
        let line = lines.next().context("a line")??;
        assert!(line.starts_with(kind.word()) && line.contains("://"), "{line}");
    }
    drop(child.stdin.take());
    assert!(child.wait()?.success());
    Ok(())
}

fn with_servers(_: &Lab) -> Result<()> {
    let script = format!("echo url=${} must=${REQUIRE}; exit 7", Kind::Etcd.variable());
    let output = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["with-servers", "--", "sh", "-c", &script])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(text.contains("url=etcd://127.0.0.1:") && text.contains(" must=1"), "{text}");
    Ok(())
}

fn shared_of_the_run(_: &Lab) -> Result<()> {
    let theirs = "redis://127.0.0.1:1";
    let output = Command::new(std::env::current_exe()?)
        .env(PART, "shared")
        .env(Kind::Redis.variable(), theirs)
        .output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), theirs);
    Ok(())
}
