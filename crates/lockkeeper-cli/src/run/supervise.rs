//! Runs the command: forwards signals, returns its exit code, and stops it before the lock ends.

use super::child::{Change, Child, exit_code};
use super::plan::Plan;
use super::signals::Signals;
use crate::arguments::OnLost;
use crate::claim::held::Held;
use crate::text::visible;
use crate::{exit, output};
use lockkeeper::backend::Moment;
use nix::sys::signal::Signal;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How often a timer is checked against the clock of validity, which goes on while the machine
/// sleeps; timers do not.
const GLANCE: Duration = Duration::from_secs(1);
/// How often we offer the terminal to a command that wants it, and check whether the group is gone.
const OFTEN: Duration = Duration::from_millis(100);
/// How long a stuck stderr can delay the end.
const LAST_WORD: Duration = Duration::from_millis(500);

/// How a command ended.
pub(crate) struct Ended {
    /// Our exit code.
    pub(crate) code: u8,
    /// Whether it ever began: not if it could not be executed, or was ended before.
    pub(crate) ran: bool,
    /// Whether it was told to stop because of the lock.
    pub(crate) stopped: bool,
}

/// Supervises the command until it has ended.
pub(crate) async fn supervise(
    child: Child,
    held: &Held,
    plan: &Plan,
    signals: &mut Signals,
) -> Ended {
    let mut watch = Watch {
        child,
        held,
        plan,
        fullest: Duration::ZERO,
        kill_at: None,
        killed: false,
        said: Vec::new(),
    };
    let status = watch.until_ended(signals).await;
    if watch.kill_at.is_some() {
        watch.until_all_ended().await;
    }
    watch.child.return_terminal(status.code().is_none());
    for line in watch.said {
        let _ = timeout(LAST_WORD, line).await;
    }
    let stopped = watch.kill_at.is_some();
    let code = if stopped { exit::LOST } else { exit_code(status) };
    Ended { code, ran: watch.child.ran(), stopped }
}

struct Watch<'a> {
    child: Child,
    held: &'a Held,
    plan: &'a Plan,
    /// The longest remaining time of the lease that was seen so far: it is less than the ttl in a
    /// store with sessions, and at first after a hand-over.
    fullest: Duration,
    /// Set once the command was told to stop because of the lock.
    kill_at: Option<Moment>,
    killed: bool,
    said: Vec<JoinHandle<()>>,
}

impl Watch<'_> {
    async fn until_ended(&mut self, signals: &mut Signals) -> ExitStatus {
        let mut warned = false;
        let mut wants_terminal = false;
        let kills = self.plan.on_lost == OnLost::Kill;
        let mut lost = self.held.lost();
        loop {
            let stopping = self.kill_at.is_some();
            tokio::select! {
                biased;
                change = self.child.change() => match change {
                    Change::Ended(status) => return status,
                    Change::Stopped(signal) => wants_terminal = self.stopped_by(signal),
                },
                () = reached(self.kill_at), if stopping && !self.killed => self.kill(),
                () = &mut lost, if !stopping && !warned => {
                    warned = true;
                    if kills {
                        self.stop();
                    }
                    self.say_lost(kills);
                }
                () = about_to_run_out(self.held, self.plan, &mut self.fullest), if kills && !stopping => {
                    self.stop();
                    let names = self.held.names_quoted();
                    self.say(format!(
                        "{names} cannot be renewed: stopping the command before the lock runs out"
                    ));
                }
                signal = signals.next() => { self.child.send(signal); }
                () = sleep(OFTEN), if wants_terminal => {
                    wants_terminal = !self.child.give_terminal_and_go_on();
                }
            }
        }
    }

    /// Asks the command to stop, and sets the deadline.
    fn stop(&mut self) {
        let left = self.held.until_others().saturating_sub(reserve(self.plan.ttl));
        self.kill_at = Some(Moment::now() + self.plan.grace.min(left));
        self.child.send(Signal::SIGTERM);
        // A stopped process must be resumed to handle SIGTERM.
        self.child.send(Signal::SIGCONT);
    }

    fn kill(&mut self) {
        self.killed = true;
        if !self.child.send(Signal::SIGKILL) {
            self.say("the command belongs to another user and could not be stopped".into());
        }
    }

    /// The command has ended; the processes that it started have until the same deadline.
    async fn until_all_ended(&mut self) {
        while self.child.is_there() && !self.killed {
            let left = self.kill_at.map_or(Duration::ZERO, Moment::remaining);
            if left.is_zero() {
                self.kill();
            } else {
                sleep(left.min(OFTEN)).await;
            }
        }
    }

    /// Returns whether the command now waits for the terminal.
    fn stopped_by(&mut self, signal: Signal) -> bool {
        match signal {
            Signal::SIGTTIN | Signal::SIGTTOU => {
                let waits = !self.child.give_terminal_and_go_on();
                if waits {
                    self.say(
                        "the command waits for the terminal: bring it to the foreground".into(),
                    );
                }
                waits
            }
            // Someone stopped it deliberately, and not through the terminal.
            Signal::SIGSTOP if !self.child.has_terminal() => false,
            _ => {
                self.say("a command under a lock cannot be suspended: it goes on".into());
                self.child.send(Signal::SIGCONT);
                false
            }
        }
    }

    fn say_lost(&mut self, stopping: bool) {
        let and = if stopping { "stopping the command" } else { "the command goes on without it" };
        let message = match self.held.loss() {
            Some((name, why)) => {
                format!("the lock {name:?} was lost: {}; {and}", visible(&why.to_string()))
            }
            None => format!("the lock was lost; {and}"),
        };
        self.say(message);
    }

    fn say(&mut self, message: String) {
        self.said.push(output::say_aside(message));
    }
}

/// The part of the lease that is left unused, so that the kernel has time to deliver SIGKILL.
fn reserve(ttl: Duration) -> Duration {
    (ttl / 20).min(Duration::from_millis(200))
}

async fn reached(moment: Option<Moment>) {
    match moment {
        None => std::future::pending().await,
        Some(moment) => moment.reached().await,
    }
}

/// Waits until so little of the lease is left that the command must begin to stop now. That never
/// happens while renewals are answered.
async fn about_to_run_out(held: &Held, plan: &Plan, fullest: &mut Duration) {
    loop {
        let left = held.until_others();
        *fullest = left.max(*fullest);
        // Half of the lease is reserved for renewals, however long the grace.
        let needed = (plan.grace + reserve(plan.ttl)).min(*fullest / 2);
        let spare = left.saturating_sub(needed);
        if spare.is_zero() {
            return;
        }
        sleep(spare.min(GLANCE)).await;
    }
}
