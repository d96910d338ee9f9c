//! A way to the store on which a command can be held back, or its answer lost.

use anyhow::{Result, ensure};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Pass,
    /// What contains the word stays here.
    Hold(&'static str),
    /// What contains the word passes, and the connection ends instead of the answer, once.
    LoseAnswer(&'static str),
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    rule: Arc<Desk>,
}

/// The rule, and how often it was applied.
struct Desk {
    state: Mutex<(Rule, usize)>,
    changed: Condvar,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let own = listener.local_addr()?.port();
        let rule = Arc::new(Desk { state: Mutex::new((Rule::Pass, 0)), changed: Condvar::new() });
        let desk = rule.clone();
        // It ends with the test program.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
                let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone())
                else {
                    return;
                };
                let there = desk.clone();
                thread::spawn(move || there.carry(client, to_server));
                let mut server = server;
                thread::spawn(move || {
                    let _ = std::io::copy(&mut server, &mut &to_client);
                    let _ = to_client.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(Self { port: own, rule })
    }

    pub(crate) fn hold(&self, word: &'static str) {
        self.rule.set(Rule::Hold(word));
    }

    pub(crate) fn lose_answer_to(&self, word: &'static str) {
        self.rule.set(Rule::LoseAnswer(word));
    }

    /// Lets through what is held back.
    pub(crate) fn pass(&self) {
        self.rule.set(Rule::Pass);
    }

    /// Waits until the rule was applied.
    pub(crate) fn applied(&self) -> Result<()> {
        let (state, none) = (self.rule.lock(), |state: &mut (Rule, usize)| state.1 == 0);
        let waited = self.rule.changed.wait_timeout_while(state, super::PATIENT, none);
        let outcome = waited.unwrap_or_else(PoisonError::into_inner).1;
        ensure!(!outcome.timed_out(), "unknown: the command never came by");
        Ok(())
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, (Rule, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, rule: Rule) {
        *self.lock() = (rule, 0);
        self.changed.notify_all();
    }

    /// From the client to the server. What we hold is small enough to come in one piece.
    fn carry(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let piece = &buffer[..length];
            let has = |word: &str| piece.windows(word.len()).any(|part| part == word.as_bytes());
            let mut state = self.lock();
            match state.0 {
                Rule::Hold(word) if has(word) => {
                    state.1 += 1;
                    self.changed.notify_all();
                    let held = |state: &mut (Rule, usize)| state.0 == Rule::Hold(word);
                    drop(self.changed.wait_while(state, held));
                }
                Rule::LoseAnswer(word) if has(word) => {
                    *state = (Rule::Pass, 1);
                    self.changed.notify_all();
                    drop(state);
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = server.write_all(piece);
                    // So that the store has carried it out before it is sent once more.
                    thread::sleep(Duration::from_millis(100));
                    return;
                }
                _ => drop(state),
            }
            if server.write_all(piece).is_err() {
                return;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }
}
