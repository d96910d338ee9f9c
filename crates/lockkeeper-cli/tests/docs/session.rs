//! All commands of one page in one shell, as a reader would type them.

use crate::command::{Shown, commands};
use crate::expected::fits;
use anyhow::{Context, Result, ensure};
use lockkeeper_docs::markdown::Block;
use lockkeeper_lab::server::{Kind, Lab};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Programs of the reader's that pages run under locks. They do nothing, and say nothing.
const PROGRAMS: &[&str] = &["backup.sh", "deploy.sh", "ffmpeg", "migrate", "move-goods", "serve"];

/// What `cargo run` starts is built already; nothing else is asked of cargo by commands that are run.
const CARGO: &str = "#!/bin/sh
[ \"$1 $2 $3\" = 'run --release --' ] || { echo \"cargo $*: mark it no-run\"; exit 99; }
shift 3; exec lockkeeper \"$@\"\n";

/// Whether a text has a URL that stands for a server of this kind.
pub(crate) fn names(kind: Kind, text: &str) -> bool {
    text.contains(&format!("{}://127.0.0.1", kind.word()))
}

pub(crate) fn run(lab: &Lab, kinds: &[Kind], page: &str, blocks: &[Block]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let servers: Vec<_> =
        kinds.iter().map(|kind| Ok((*kind, lab.start(*kind)?))).collect::<Result<_>>()?;
    let mut shown: Vec<Shown> = blocks.iter().flat_map(commands).collect();
    for (kind, server) in &servers {
        for each in &mut shown {
            each.command = with_server(&each.command, *kind, &server.url());
        }
    }
    prepare(folder.path())?;
    let mut shell = Shell::start(folder.path(), &script(&shown)?)?;
    shell.wait()?;
    for (number, each) in shown.iter().enumerate() {
        let read = |what: &str| fs::read_to_string(folder.path().join(format!(".{number}.{what}")));
        let printed = read("out").unwrap_or_default();
        let code = read("code").unwrap_or_else(|_| "none: the shell ended".to_owned());
        let place = format!("{page}:{}: $ {}", each.line, each.command);
        ensure!(code.trim() == "0", "{place}\nexit code {}\nit printed:\n{printed}", code.trim());
        let expected = &each.expected;
        ensure!(
            expected.is_empty() || fits(expected, &printed),
            "{place}\nexpected:\n{}\n\nit printed:\n{printed}",
            expected.join("\n")
        );
    }
    Ok(())
}

/// The command with the server that was started instead of the one that every reader has.
fn with_server(command: &str, kind: Kind, url: &str) -> String {
    let usual = format!("{}://127.0.0.1", kind.word());
    let mut pieces = command.split(&usual);
    let mut made = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let piece = piece.strip_prefix("/database").unwrap_or(piece);
        made.push_str(url);
        match piece.strip_prefix('?') {
            Some(options) if url.contains('?') => made.push_str(&format!("&{options}")),
            _ => made.push_str(piece),
        }
    }
    made
}

fn prepare(folder: &Path) -> Result<()> {
    let programs = folder.join("programs");
    fs::create_dir(&programs)?;
    fs::create_dir(folder.join("home"))?;
    let mut files = vec![(programs.join("cargo"), CARGO)];
    for program in PROGRAMS {
        files.push((folder.join(program), "#!/bin/sh\n"));
        files.push((programs.join(program), "#!/bin/sh\n"));
    }
    for (file, text) in files {
        fs::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn script(shown: &[Shown]) -> Result<String> {
    // What runs in the background at the end of the page is ended with it.
    let mut script = "trap 'jobs -p | xargs --no-run-if-empty kill; wait' EXIT\n".to_owned();
    for (number, each) in shown.iter().enumerate() {
        // A comment may end the command, so the bracket has a line of its own.
        writeln!(
            script,
            "{{\n{}\n}} > .{number}.out 2>&1 < /dev/null\necho $? > .{number}.code",
            each.command
        )?;
    }
    Ok(script)
}

/// A shell that is ended with everything it has started.
struct Shell(Child);

impl Shell {
    fn start(folder: &Path, script: &str) -> Result<Self> {
        fs::write(folder.join(".script"), script)?;
        let lockkeeper =
            Path::new(env!("CARGO_BIN_EXE_lockkeeper")).parent().context("no folder")?;
        let path = std::env::var("PATH")?;
        let path = format!("{}/programs:{}:{path}", folder.display(), lockkeeper.display());
        let mut shell = Command::new("timeout");
        // Longer than any page takes on a busy machine.
        shell.args(["300", "bash", ".script"]).current_dir(folder).env("PATH", path);
        shell.env("HOME", folder.join("home")).env("CI_PIPELINE_ID", "4711");
        for name in std::env::vars().map(|(name, _)| name) {
            if name.starts_with("LOCKKEEPER_") || name.starts_with("XDG_") {
                shell.env_remove(name);
            }
        }
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(shell.process_group(0).spawn().context("cannot run timeout and bash")?))
    }

    fn wait(&mut self) -> Result<()> {
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Only before its number can be another's.
        if let (Ok(None), Ok(group)) = (self.0.try_wait(), i32::try_from(self.0.id())) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}
