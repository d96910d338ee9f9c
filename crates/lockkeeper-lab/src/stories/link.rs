//! The way from one client to the store, on which a request can be held back, its answer lost, or
//! the cable cut.

use crate::proxy::{Proxy, Side, Step};
use crate::workload::url;
use anyhow::{Result, bail};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a story waits for a request that must come.
const PATIENT: Duration = Duration::from_secs(20);

type Matches = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// A proxy before every host of a store.
pub(crate) struct Link {
    proxies: Vec<Proxy>,
    rule: Arc<Rule>,
}

/// What is to happen to a request, and how often it did.
#[derive(Default)]
struct Rule {
    state: Mutex<State>,
    applied: Condvar,
}

#[derive(Default)]
struct State {
    what: Option<(Matches, Step)>,
    applied: usize,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.proxies.iter().map(|proxy| proxy.address())).finish()
    }
}

impl Link {
    /// Before the hosts of this URL.
    pub(crate) fn before(store: &str) -> Result<Self> {
        let rule = Arc::new(Rule::default());
        let proxy = |host: SocketAddr| {
            let rule = rule.clone();
            Ok(Proxy::start_read(host, move || {
                let rule = rule.clone();
                // What is looked for is small enough to come in one piece.
                Box::new(move |piece| rule.read(piece))
            })?)
        };
        let proxies = url::hosts(store)?.into_iter().map(proxy).collect::<Result<Vec<Proxy>>>()?;
        Ok(Self { proxies, rule })
    }

    /// The store's URL by this way.
    pub(crate) fn url(&self, store: &str) -> Result<String> {
        let hosts: Vec<SocketAddr> = self.proxies.iter().map(|proxy| proxy.address()).collect();
        url::with_hosts(store, &hosts)
    }

    /// Holds back the next requests that match, and what comes behind them, until
    /// [`pass`](Self::pass).
    pub(crate) fn hold(&self, matches: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
        self.rule.set(Some((Arc::new(matches), Step::Hold)));
    }

    /// Lets the next request that matches through, and cuts the connection in place of its answer.
    pub(crate) fn lose_answer(&self, matches: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
        self.rule.set(Some((Arc::new(matches), Step::EndInstead)));
    }

    /// Lets through what is held back.
    pub(crate) fn pass(&self) {
        self.rule.set(None);
        self.proxies.iter().for_each(|proxy| proxy.let_go());
    }

    /// Waits until the rule was applied.
    pub(crate) fn applied(&self) -> Result<()> {
        let state = self.rule.state.lock().unwrap_or_else(PoisonError::into_inner);
        let none = |state: &mut State| state.applied == 0;
        let waited = self.rule.applied.wait_timeout_while(state, PATIENT, none);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            bail!("the request that was to be broken never came");
        }
        Ok(())
    }

    /// Cuts the cable to this host: nothing arrives, and neither side is told.
    pub(crate) fn cut(&self, host: usize) {
        self.proxies[host].partition();
    }

    /// Cuts the cable to all hosts.
    pub(crate) fn cut_all(&self) {
        self.proxies.iter().for_each(|proxy| proxy.partition());
    }

    /// Resets every connection, as a firewall does.
    pub(crate) fn reset(&self) {
        self.proxies.iter().for_each(|proxy| proxy.reset());
    }

    /// Ends every connection at the server's side, and does not tell the client.
    pub(crate) fn forget(&self) {
        self.proxies.iter().for_each(|proxy| proxy.forget(Side::Server));
    }

    /// The port of the way to the first host.
    pub(crate) fn port(&self) -> u16 {
        self.proxies[0].address().port()
    }
}

impl Rule {
    fn set(&self, what: Option<(Matches, Step)>) {
        let state = State { what, applied: 0 };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn read(&self, piece: &[u8]) -> Step {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((matches, step)) = state.what.clone() else { return Step::Pass };
        if !matches(piece) {
            return Step::Pass;
        }
        state.applied += 1;
        if step == Step::EndInstead {
            // Once.
            state.what = None;
        }
        self.applied.notify_all();
        step
    }
}

/// Whether a request to Redis is this command.
pub(crate) fn redis_command(word: &'static str) -> impl Fn(&[u8]) -> bool + Send + Sync + 'static {
    let word = format!("\r\n{word}\r\n").into_bytes();
    move |piece| piece.windows(word.len()).any(|part| part == word)
}
