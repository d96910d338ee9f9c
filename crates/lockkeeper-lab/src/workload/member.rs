//! One process of a run, or a thread that stands for one.

use super::gate::{Gate, Gated};
use super::network::Network;
use super::recorder::Recorder;
use super::worker::{self, Post};
use anyhow::{Context, Result, anyhow, bail};
use lockkeeper::Keeper;
use lockkeeper::backend::Backend;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long to block, and where to report the end.
type Stall = (Duration, mpsc::Sender<()>);

/// A thread with its own runtime and keeper. Blocking it, and the keeper's way to the store, has
/// the effect that a pause has on a process: no task in it runs, no claim is renewed, and the clock
/// goes on.
#[derive(Debug)]
struct Thread {
    handle: Option<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
    stalls: tokio::sync::mpsc::UnboundedSender<Stall>,
}

#[derive(Debug)]
enum Body {
    Process(Child),
    Thread(Thread),
}

/// A contender, with its network to the store.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) process: String,
    pub(crate) network: Option<Network>,
    body: Body,
}

impl Member {
    pub(crate) fn process(process: String, network: Option<Network>, child: Child) -> Self {
        Self { process, network, body: Body::Process(child) }
    }

    pub(crate) fn thread(
        post: Post,
        network: Option<Network>,
        backend: Arc<dyn Backend>,
        history: PathBuf,
    ) -> Result<Self> {
        let recorder = Recorder::append_to(&history)?;
        let process = post.process.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (stalls, mut stalled) = tokio::sync::mpsc::unbounded_channel::<Stall>();
        let stopped = stop.clone();
        let gate = Gate::default();
        let backend = Gated::behind(gate.clone(), backend);
        let handle =
            std::thread::Builder::new().name(format!("process {process}")).spawn(move || {
                // One thread only: a second one would go on working while this one is blocked.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    tokio::spawn(async move {
                        while let Some((span, over)) = stalled.recv().await {
                            gate.close_for(span);
                            let _ = over.send(());
                        }
                    });
                    let keeper = Keeper::new(backend)?;
                    let recorder = (recorder, history.as_path());
                    worker::labour(keeper, recorder, post, stopped, Arc::default()).await
                })
            })?;
        let body = Body::Thread(Thread { handle: Some(handle), stop, stalls });
        Ok(Self { process, network, body })
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let Body::Process(child) = &self.body else { bail!("a thread gets no signals") };
        let pid = i32::try_from(child.id()).context("no such process id")?;
        kill(Pid::from_raw(pid), signal).context("cannot signal a process of the run")
    }

    /// Ends the second runtime of the process.
    pub(crate) fn end_runtime(&self) -> Result<()> {
        let Body::Process(child) = &self.body else { bail!("a thread has one runtime") };
        let mut told = child.stdin.as_ref().context("the process was told to stop")?;
        told.write_all(b"r").context("cannot tell a process of the run")
    }

    /// Blocks the thread; returns when it resumes.
    pub(crate) fn stall(&self, span: Duration) -> Result<()> {
        let Body::Thread(thread) = &self.body else { bail!("a process is paused, not stalled") };
        let (over, is_over) = mpsc::channel();
        thread.stalls.send((span, over)).map_err(|_| anyhow!("the thread is gone"))?;
        is_over.recv().context("the thread is gone")
    }

    /// Asks it to finish its current work, and end.
    pub(crate) fn tell_to_stop(&mut self) {
        match &mut self.body {
            Body::Process(child) => drop(child.stdin.take()),
            Body::Thread(thread) => thread.stop.store(true, Ordering::SeqCst),
        }
    }

    /// Whether it has ended properly.
    ///
    /// # Errors
    /// When it ended in any other way.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        let process = &self.process;
        match &mut self.body {
            Body::Process(child) => match child.try_wait()? {
                None => Ok(false),
                Some(status) if status.success() => Ok(true),
                Some(status) => bail!("process {process} of the run failed: {status}"),
            },
            Body::Thread(thread) => {
                let Some(handle) = thread.handle.take_if(|handle| handle.is_finished()) else {
                    return Ok(thread.handle.is_none());
                };
                match handle.join() {
                    Ok(ended) => ended.with_context(|| format!("thread {process} failed"))?,
                    Err(_) => bail!("thread {process} of the run panicked"),
                }
                Ok(true)
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        match &mut self.body {
            Body::Process(child) => {
                // Already gone, if the run went well.
                let _ = child.kill();
                let _ = child.wait();
            }
            Body::Thread(thread) => thread.stop.store(true, Ordering::SeqCst),
        }
    }
}
