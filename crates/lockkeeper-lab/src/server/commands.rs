//! `lab servers` and `lab with-servers`.

use super::plan::resume;
use super::{Kind, Lab, REQUIRE, Server};
use anyhow::{Context, Result};
use std::io::Read;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::Instant;

/// Starts one server of each kind, in parallel.
fn one_of_each(lab: &Lab) -> Result<Vec<(Kind, Server)>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = Kind::ALL
            .into_iter()
            .map(|kind| scope.spawn(move || Ok((kind, lab.start(kind)?))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(resume)).collect()
    })
}

/// Starts one of each kind, prints their URLs, and waits for Ctrl-C, TERM or the end of input.
///
/// # Errors
/// When one does not start.
pub fn servers() -> Result<()> {
    let begin = Instant::now();
    let lab = Lab::open()?;
    let servers = one_of_each(&lab)?;
    for (kind, server) in &servers {
        println!("{:<10}  {}", kind.word(), server.url());
    }
    println!("\nready after {:.1?}; Ctrl-C, or the end of the input, ends them", begin.elapsed());
    wait_for_the_end()
}

/// Starts one of each kind, and runs a command that finds their URLs in its environment.
///
/// # Errors
/// When one does not start, or the command cannot be run.
pub fn with_servers(words: &[String]) -> Result<ExitCode> {
    let begin = Instant::now();
    let lab = Lab::open()?;
    let servers = one_of_each(&lab)?;
    println!("{} servers are ready after {:.1?}", servers.len(), begin.elapsed());
    let (program, rest) = words.split_first().context("with what command?")?;
    let mut command = Command::new(program);
    // If `cargo run` started us: a cargo that the command starts would take them for a change, and
    // build again whatever looks at them.
    for (variable, _) in std::env::vars_os() {
        let text = variable.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&variable);
        }
    }
    let status = command
        .args(rest)
        .envs(servers.iter().map(|(kind, server)| (kind.variable(), server.url())))
        .env(REQUIRE, "1")
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn wait_for_the_end() -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    let ended = sender.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let interrupt = signal(SignalKind::interrupt());
            let terminate = signal(SignalKind::terminate());
            if let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            }
        });
        let _ = sender.send(());
    });
    receiver.recv()?;
    Ok(())
}
