//! A taker in its own process, as seen by the process that commands it.

use crate::stage::PATIENT;
use crate::verdict::{Failure, Outcome, ensure};
use lockkeeper::backend::Moment;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: mpsc::UnboundedReceiver<String>,
    /// Answers that arrived while another answer was awaited.
    kept: Vec<String>,
}

impl Process {
    pub(crate) fn start(taker: &Path, url: &str) -> Outcome<Self> {
        let mut child = Command::new(taker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::unknown(format_args!("{}: {error}", taker.display())))?;
        let (Some(mut orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::unknown("the taker has no pipes"));
        };
        writeln!(orders, "{url}")?;
        let (tell, heard) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, orders, answers: heard, kept: Vec::new() })
    }

    /// Gives an order about `slot` without waiting for the answer.
    pub(crate) fn tell(&mut self, slot: &str, order: &str) -> Outcome {
        Ok(writeln!(self.orders, "{slot} {order}")?)
    }

    /// The next answer about `slot`.
    pub(crate) async fn hear(&mut self, slot: &str) -> Outcome<String> {
        let hearing = async {
            loop {
                if let Some(answer) = self.kept_about(slot) {
                    return Ok(answer);
                }
                match self.answers.recv().await {
                    Some(line) if line.starts_with("- error") => {
                        return Err(Failure::unknown(format_args!("the taker says {line}")));
                    }
                    Some(line) => self.kept.push(line),
                    None => return Err(Failure::unknown("the taker is gone")),
                }
            }
        };
        let heard = tokio::time::timeout(PATIENT, hearing).await;
        heard.unwrap_or_else(|_| Err(Failure::broken(format!("no answer about {slot:?}"))))
    }

    /// What else it said about `slot` before it was killed.
    pub(crate) async fn rest(&mut self, slot: &str) -> Vec<String> {
        // Ends when the pipe does.
        while let Some(line) = self.answers.recv().await {
            self.kept.push(line);
        }
        std::iter::from_fn(|| self.kept_about(slot)).collect()
    }

    /// Whether there is no answer about `slot` yet.
    pub(crate) fn is_silent(&mut self, slot: &str) -> bool {
        while let Ok(line) = self.answers.try_recv() {
            self.kept.push(line);
        }
        let start = format!("{slot} ");
        !self.kept.iter().any(|line| line.starts_with(&start))
    }

    fn kept_about(&mut self, slot: &str) -> Option<String> {
        let start = format!("{slot} ");
        let index = self.kept.iter().position(|line| line.starts_with(&start))?;
        Some(self.kept.remove(index)[start.len()..].to_owned())
    }

    /// Gives an order and waits for its answer.
    pub(crate) async fn ask(&mut self, slot: &str, order: &str) -> Outcome<String> {
        self.tell(slot, order)?;
        self.hear(slot).await
    }

    /// Waits until a `take` about `slot` was granted; returns its token, zero if it has none.
    pub(crate) async fn granted(&mut self, slot: &str) -> Outcome<u64> {
        let answer = self.hear(slot).await?;
        match answer.strip_prefix("held ") {
            Some(token) => Ok(token.parse().unwrap_or_default()),
            None => Err(Failure::broken(format!("the process was not granted: {answer}"))),
        }
    }

    /// Takes and waits for the grant.
    pub(crate) async fn take(&mut self, slot: &str, terms: &str) -> Outcome<u64> {
        self.tell(slot, &format!("take {terms}"))?;
        self.granted(slot).await
    }

    /// A moment before which the claim in `slot` is certainly valid for the process.
    pub(crate) async fn valid_until(&mut self, slot: &str) -> Outcome<Moment> {
        let before = Moment::now();
        let answer = self.ask(slot, "remaining").await?;
        let left: u64 = answer.parse().unwrap_or_default();
        ensure!(left > 0, "the process does not hold {slot:?}: {answer}");
        Ok(before + Duration::from_millis(left))
    }

    /// Kills it, as a power cut would.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Pauses it. The signal alone is not enough: its threads run on until one of them handles it,
    /// which takes a while on a busy machine.
    pub(crate) fn pause(&self) -> Outcome {
        kill(self.pid()?, Signal::SIGSTOP)?;
        match waitpid(self.pid()?, Some(WaitPidFlag::WUNTRACED))? {
            WaitStatus::Stopped(..) => Ok(()),
            other => Err(Failure::unknown(format_args!("not paused but {other:?}"))),
        }
    }

    pub(crate) fn go_on(&self) -> Outcome {
        Ok(kill(self.pid()?, Signal::SIGCONT)?)
    }

    fn pid(&self) -> Outcome<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
