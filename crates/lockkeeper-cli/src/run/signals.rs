//! The signals that are meant for the command.

use crate::exit::{self, Failure};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Forwarded to the command; before it runs, those that end a process end us.
///
/// Not included: signals that cannot be caught, signals that report a process's own fault (our
/// SIGSEGV is not the command's), and real-time signals, which end us and so the command.
const PASSED_ON: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGIO,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Signal::SIGPWR,
    Signal::SIGWINCH,
    Signal::SIGURG,
    Signal::SIGCONT,
];

/// By default these do nothing to a process.
const HARMLESS: &[Signal] = &[Signal::SIGWINCH, Signal::SIGURG, Signal::SIGCONT];

/// Caught only once the lock is held: if we were stopped, we could not renew it. A waiter may be
/// stopped.
const STOPPING: &[Signal] = &[Signal::SIGTSTP, Signal::SIGTTIN];

/// Holds back signals that arrive before anyone listens. They stay pending until this is dropped on
/// the same thread, instead of killing us directly with another exit code.
#[derive(Debug)]
pub(crate) struct Early {
    blocked: SigSet,
}

impl Early {
    /// Must be called before there are other threads: they inherit the mask, and leave these
    /// signals to the main thread.
    pub(crate) fn hold_back() -> Self {
        let mut blocked: SigSet = PASSED_ON.iter().copied().collect();
        // It cannot fail for signals that exist. Signals that were already blocked stay blocked.
        if let Ok(before) = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
            before.iter().for_each(|signal| blocked.remove(signal));
        }
        Self { blocked }
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        let _ = self.blocked.thread_unblock();
    }
}

pub(crate) struct Signals {
    received: mpsc::UnboundedReceiver<Signal>,
    tell: mpsc::UnboundedSender<Signal>,
    ignored: Ignored,
    asked_to_end: Option<Signal>,
}

impl Signals {
    /// Starts to listen; signals held back by `early` come first.
    pub(crate) fn listen(early: Early) -> Result<Self, Failure> {
        let (tell, received) = mpsc::unbounded_channel();
        let signals = Self { received, tell, ignored: Ignored::at_start(), asked_to_end: None };
        signals.catch(PASSED_ON)?;
        drop(early);
        Ok(signals)
    }

    /// From now on nothing but SIGSTOP stops us.
    pub(crate) fn refuse_to_stop(&self) -> Result<(), Failure> {
        self.catch(STOPPING)
    }

    /// Signals that were ignored when we began (`nohup`) stay ignored: if we caught them, the
    /// command would no longer ignore them either.
    fn catch(&self, wanted: &[Signal]) -> Result<(), Failure> {
        for &one in wanted.iter().filter(|one| !self.ignored.contains(**one)) {
            let mut stream = signal(SignalKind::from_raw(one as i32)).map_err(|error| {
                Failure::new(exit::NO_STORE, format!("cannot listen for {one}: {error}"))
            })?;
            let tell = self.tell.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && tell.send(one).is_ok() {}
            });
        }
        Ok(())
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.received.recv().await {
            Some(signal) => {
                if matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM) {
                    self.asked_to_end.get_or_insert(signal);
                }
                signal
            }
            // Not reached: we have a sender ourselves.
            None => std::future::pending().await,
        }
    }

    /// The first signal so far by which a program is asked to end.
    pub(crate) fn asked_to_end(&self) -> Option<Signal> {
        self.asked_to_end
    }

    /// The next signal that ends a process. Cancel safe.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !HARMLESS.contains(&signal) && !STOPPING.contains(&signal) {
                return signal;
            }
        }
    }
}

/// The signals that were set to be ignored when this process was started.
struct Ignored(u64);

impl Ignored {
    fn at_start() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self(mask_in(&status).unwrap_or_default())
    }

    fn contains(&self, signal: Signal) -> bool {
        self.0 & (1 << (signal as i32 - 1)) != 0
    }
}

fn mask_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let ignored =
            Ignored(mask_in("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n").unwrap());
        assert!(ignored.contains(Signal::SIGHUP));
        assert!(ignored.contains(Signal::SIGPIPE));
        assert!(!ignored.contains(Signal::SIGTERM));
        assert_eq!(mask_in("Name:\tx\n"), None);
    }
}
