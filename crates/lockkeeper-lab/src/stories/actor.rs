//! A client of a story: one process that takes locks and writes on command, and writes down what
//! happens. A process of its own, so that it can be paused and killed.

use crate::history::{Mode, Refusal, What};
use crate::workload::{Access, Recorder, Writer, nanos, now, when};
use anyhow::{Context, Result, bail};
use clap::Args;
use lockkeeper::event::EventKind;
use lockkeeper::{ErrorKind, Guard, Keeper};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// One client of a story; started by the story.
#[derive(Debug, Clone, Args)]
pub struct ActArguments {
    /// Its name in the history
    #[arg(long)]
    client: String,
    /// Where it writes down what happens
    #[arg(long)]
    history: PathBuf,
    /// The number of its first claim
    #[arg(long)]
    claims: u64,
    /// Where the resources are
    #[arg(long)]
    resources: SocketAddr,
    /// The store
    store: String,
}

/// The claim that the keeper's events are about, and its guard.
type Current = Arc<Mutex<Option<(u64, Weak<Guard>)>>>;

struct Actor {
    client: String,
    keeper: Keeper,
    recorder: Recorder,
    access: Access,
    next: u64,
    current: Current,
    held: Option<Held>,
}

struct Held {
    claim: u64,
    name: String,
    token: u64,
    guard: Arc<Guard>,
    /// What the two resources said when they were read.
    read: (u64, u64),
}

/// Obeys until the input ends.
///
/// # Errors
/// When the store or the resources cannot be reached at the start.
pub async fn act(arguments: ActArguments) -> Result<()> {
    // The end of the input also ends this process, but not while it is paused.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let process = arguments.client.split('/').next().unwrap_or_default().to_owned();
    let mut actor = Actor {
        keeper: lockkeeper::connect(&arguments.store).await?,
        recorder: Recorder::append_to(&arguments.history)?,
        access: Access::open(arguments.resources, &process).await?,
        client: arguments.client,
        next: arguments.claims,
        current: Current::default(),
        held: None,
    };
    let (order, mut orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if order.send(line).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    tokio::spawn(listen(
        actor.keeper.clone(),
        actor.recorder.clone(),
        actor.client.clone(),
        actor.current.clone(),
    ));
    println!("ready");
    while let Some(line) = orders.recv().await {
        let answer = actor.obey(&line).await;
        println!(
            "{}",
            answer.unwrap_or_else(|error| format!("error {error:#}")).replace('\n', " ")
        );
    }
    Ok(())
}

/// Records renewals and losses of the claim that is held.
async fn listen(keeper: Keeper, recorder: Recorder, client: String, current: Current) {
    let mut events = keeper.events();
    while let Some(event) = events.next().await {
        let known = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((claim, guard)) = known.filter(|(claim, _)| *event.note == claim.to_string())
        else {
            continue;
        };
        match event.kind {
            EventKind::Renewed => {
                let left = guard.upgrade().map_or(Duration::ZERO, |guard| guard.remaining());
                if !left.is_zero() {
                    let what = What::Renewed { claim, valid_until: now() + nanos(left) };
                    recorder.write(when(event.at), &client, what);
                }
            }
            EventKind::Lost(_) => recorder.note(&client, What::Lost { claim }),
            _ => {}
        }
    }
}

impl Actor {
    async fn obey(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lock", name, ttl, limit] => {
                self.take(name, ttl.parse()?, Some(Duration::from_millis(limit.parse()?))).await
            }
            ["try", name, ttl] => self.take(name, ttl.parse()?, None).await,
            ["release"] => self.release().await,
            ["read"] => self.read().await,
            ["write", which] => self.write(which == "fenced").await,
            _ => bail!("no such order: {line}"),
        }
    }

    async fn take(&mut self, name: &str, ttl: u64, limit: Option<Duration>) -> Result<String> {
        let claim = self.next;
        self.next += 1;
        let mode = Mode::Exclusive;
        self.recorder.note(&self.client, What::Ask { claim, name: name.to_owned(), mode });
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some((claim, Weak::new()));
        let lock = self.keeper.lock(name).ttl(Duration::from_millis(ttl)).note(&claim.to_string());
        let outcome = match limit {
            Some(limit) => lock.acquire_within(limit).await.map(Some),
            None => lock.try_acquire().await,
        };
        let (how, said) = match outcome {
            Ok(Some(guard)) => return Ok(self.holds(claim, name, guard)),
            Ok(None) => (Refusal::Busy, "busy".to_owned()),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                (Refusal::TimedOut, "timed-out".to_owned())
            }
            Err(error) => (Refusal::Unknown, format!("unknown {error}")),
        };
        self.recorder.note(&self.client, What::Refused { claim, how });
        Ok(said)
    }

    fn holds(&mut self, claim: u64, name: &str, guard: Guard) -> String {
        let at = now();
        let valid_until = at + nanos(guard.remaining());
        let token = guard.token().map_or(0, |token| token.get());
        let guard = Arc::new(guard);
        let watched = Some((claim, Arc::downgrade(&guard)));
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = watched;
        self.recorder.write(at, &self.client, What::Granted { claim, token, valid_until });
        self.held = Some(Held { claim, name: name.to_owned(), token, guard, read: (0, 0) });
        format!("held {token}")
    }

    async fn release(&mut self) -> Result<String> {
        let Held { claim, guard, .. } = self.held.take().context("nothing is held")?;
        let believed = guard.is_held();
        self.recorder.note(&self.client, What::Release { claim });
        let outcome = match Arc::try_unwrap(guard) {
            Ok(guard) => guard.release().await,
            // The task that records a renewal has it for a moment; it is given back then.
            Err(_) => Ok(()),
        };
        self.recorder.note(&self.client, What::Released { claim });
        Ok(match outcome {
            Ok(()) if believed => "released".to_owned(),
            Ok(()) => "not-held".to_owned(),
            Err(error) => format!("not-held {error}"),
        })
    }

    async fn read(&mut self) -> Result<String> {
        let Held { claim, name, token, read, .. } =
            self.held.as_mut().context("nothing is held")?;
        let by = Writer { client: &self.client, claim: *claim, name, token: *token };
        *read = self.access.read(&by).await?;
        Ok(format!("{} {}", read.0, read.1))
    }

    /// Writes one more than what was read, whatever happened since: a program that was stopped just
    /// before its write has made its checks already.
    async fn write(&mut self, fenced: bool) -> Result<String> {
        let Held { claim, name, token, read, .. } =
            self.held.as_ref().context("nothing is held")?;
        let by = Writer { client: &self.client, claim: *claim, name, token: *token };
        let value = 1 + if fenced { read.1 } else { read.0 };
        let taken = self.access.write(&by, fenced, value).await?;
        Ok(if taken { "accepted" } else { "refused" }.to_owned())
    }
}
