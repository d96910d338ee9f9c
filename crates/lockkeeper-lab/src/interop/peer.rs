//! One process that takes locks on command.

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread::{scope, sleep};
use std::time::Duration;

/// How long an answer may take. Generous: only a broken peer takes this long.
const PATIENT: Duration = Duration::from_secs(30);

/// A peer process; killed when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// What a crowd of a peer's tasks took.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// All of them together.
    pub took: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// The mean of all waits.
    pub mean: Duration,
    /// How many locks were had.
    pub done: u32,
}

impl Peer {
    /// Starts the peer, and waits until it is ready.
    ///
    /// # Errors
    /// When the peer does not become ready, with its output.
    pub fn start(mut command: Command, url: &str) -> Result<Self> {
        let shown = format!("{command:?}");
        let spawned = command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot run {shown}"))?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let (tell, answers) = mpsc::channel();
        // Created before anything can fail, so that a failure kills it too.
        let mut peer = Self { child, orders: orders.context("no pipe")?, answers };
        let output = BufReader::new(output.context("no pipe")?);
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok())
        });
        match peer.hear()?.as_str() {
            "ready" => Ok(peer),
            other => bail!("{shown} says {other:?} where it should be ready"),
        }
    }

    /// Our own peer, which is this program again, at the store with this URL.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn ours(url: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("peer");
        Self::start(command, url)
    }

    /// Gives an order without waiting for the answer.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn tell(&mut self, order: &str) -> Result<()> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    /// The next answer.
    ///
    /// # Errors
    /// When none comes, or the peer says that something went wrong.
    pub fn hear(&mut self) -> Result<String> {
        self.hear_within(PATIENT)
    }

    /// As [`hear`](Self::hear), for an answer that may take this long.
    ///
    /// # Errors
    /// As there.
    pub fn hear_within(&mut self, limit: Duration) -> Result<String> {
        match self.answers.recv_timeout(limit) {
            Ok(answer) if answer.starts_with("error") => bail!("the peer says {answer}"),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => bail!("no answer in {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the peer ended: {:?}", self.child.wait()),
        }
    }

    /// Gives an order and waits for the answer, which must be `answer`.
    ///
    /// # Errors
    /// When the answer is different, or as [`hear`](Self::hear).
    pub fn must(&mut self, order: &str, answer: &str) -> Result<()> {
        self.tell(order)?;
        self.must_say(answer).with_context(|| format!("to {order:?}"))
    }

    /// Gives an order that must fail, with an error that says `why`.
    ///
    /// # Errors
    /// When the order succeeds, or fails with another error.
    pub fn must_fail(&mut self, order: &str, why: &str) -> Result<()> {
        self.tell(order)?;
        match self.answers.recv_timeout(PATIENT) {
            Ok(said) if said.starts_with("error") && said.contains(why) => Ok(()),
            other => bail!("to {order:?} it says {other:?} and should fail with {why:?}"),
        }
    }

    /// Waits for the answer to an earlier order.
    ///
    /// # Errors
    /// As [`must`](Self::must).
    pub fn must_say(&mut self, answer: &str) -> Result<()> {
        match self.hear()? {
            said if said == answer => Ok(()),
            said => bail!("it says {said:?} and should say {answer:?}"),
        }
    }

    /// As [`must_say`](Self::must_say), for a peer that may not answer.
    ///
    /// # Errors
    /// When the peer answers something else, or does not answer in time.
    pub fn must_say_within(&mut self, answer: &str, limit: Duration) -> Result<()> {
        match self.answers.recv_timeout(limit) {
            Ok(said) if said == answer => Ok(()),
            other => bail!("it says {other:?} and should say {answer:?}"),
        }
    }

    /// How long the peer takes for this many locks, one after another; some peers take one more
    /// number, of tasks that do so at once.
    ///
    /// # Errors
    /// When the peer does not support it, or as [`hear`](Self::hear).
    pub fn bench(&mut self, name: &str, count: impl Display) -> Result<Duration> {
        self.tell(&format!("bench {name} {count}"))?;
        let said = self.hear()?;
        let seconds = said.strip_prefix("took ").with_context(|| format!("it says {said:?}"))?;
        Ok(Duration::from_secs_f64(seconds.parse()?))
    }

    /// Has so many tasks of the peer take the lock so often each; none begins anew after `limit`. `None`
    /// if one of them takes as long again for what it has begun: the peer is of no use then.
    ///
    /// # Errors
    /// When the peer does not support it, or is gone.
    pub fn crowd(
        &mut self,
        name: &str,
        count: u32,
        tasks: u32,
        limit: Duration,
    ) -> Result<Option<Crowd>> {
        self.tell(&format!("crowd {name} {count} {tasks} {}", limit.as_millis()))?;
        let said = match self.answers.recv_timeout(limit * 2) {
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            said => said?,
        };
        let numbers = said.strip_prefix("took ").with_context(|| format!("it says {said:?}"))?;
        let numbers: Vec<_> = numbers.split(' ').collect();
        let [took, longest, mean, done] = numbers[..] else { bail!("it says {said:?}") };
        let span = |seconds: &str| anyhow::Ok(Duration::from_secs_f64(seconds.parse()?));
        let (took, longest, mean) = (span(took)?, span(longest)?, span(mean)?);
        Ok(Some(Crowd { took, longest, mean, done: done.parse()? }))
    }

    /// Checks that the peer has not answered yet.
    ///
    /// # Errors
    /// With the answer, if there is one.
    pub fn must_be_silent(&mut self) -> Result<()> {
        match self.answers.try_recv() {
            Err(TryRecvError::Empty) => Ok(()),
            other => bail!("it should still wait, and there is {other:?}"),
        }
    }

    /// Kills the peer, as a power cut would.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Pauses the peer until [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn pause(&self) -> Result<()> {
        Ok(kill(self.pid()?, Signal::SIGSTOP)?)
    }

    /// Resumes the peer.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn go_on(&self) -> Result<()> {
        Ok(kill(self.pid()?, Signal::SIGCONT)?)
    }

    fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number that every peer reads and writes, each under the lock: no update is lost.
///
/// # Errors
/// When one was lost, or a peer did not get the lock.
pub(super) fn lose_no_update(peers: Vec<Peer>, take: &str, give_back: &str) -> Result<()> {
    const ROUNDS: usize = 15;
    let (number, updates) = (Mutex::new(0), peers.len() * ROUNDS);
    let now = || number.lock().map(|number| *number).unwrap_or_default();
    let work = |mut peer: Peer| {
        for _ in 0..ROUNDS {
            peer.must(take, "held")?;
            let seen = now();
            sleep(Duration::from_millis(2));
            if let Ok(mut number) = number.lock() {
                *number = seen + 1;
            }
            peer.must(give_back, "unlocked")?;
        }
        anyhow::Ok(())
    };
    scope(|threads| {
        let started: Vec<_> = peers.into_iter().map(|peer| threads.spawn(|| work(peer))).collect();
        let ended =
            started.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a panic"))?);
        ended.collect::<Result<Vec<()>>>()
    })?;
    ensure!(now() == updates, "of {updates} updates {} are left", now());
    Ok(())
}
