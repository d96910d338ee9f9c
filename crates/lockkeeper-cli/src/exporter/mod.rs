//! `exporter`: what is in a store, for Prometheus.

mod http;
mod look;
mod prefixes;
mod text;

use crate::arguments::StoreArguments;
use crate::claim::{self, LAST_WAIT};
use crate::events::checked;
use crate::exit::{self, Failure};
use crate::text::visible;
use crate::ticket::Interrupt;
use crate::{Early, output};
use clap::Args;
use lockkeeper::{Error, Keeper};
use look::Looked;
use prefixes::Prefixes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use text::Totals;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a look may take, at least: a store with very many locks needs its time.
const SHORTEST_LIMIT: Duration = Duration::from_secs(30);
/// The longest interval: who looks less often does not watch.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) const EXIT_CODES: &str = "\
GET /metrics tells what the last look at the store has seen; however many ask, one look at a time is
taken, every 15 seconds or as --every says. Of the locks that start with a --prefix, and of all others
together (prefix=\"other\"):
  lockkeeper_store_locks                 names that are held or waited for
  lockkeeper_store_held                  those who hold one
  lockkeeper_store_waiting               those who wait
  lockkeeper_store_oldest_hold_seconds   for how long the oldest of them has held
  lockkeeper_store_oldest_wait_seconds   for how long the oldest of them has waited
and of the store:
  lockkeeper_up                          1 if it answered; if 0, none of the above is told
  lockkeeper_round_trip_seconds          how long the answer to a short question took
  lockkeeper_last_look_timestamp_seconds when it was last seen whole
  lockkeeper_look_seconds                how long that took
  lockkeeper_looks_total                 looks so far, outcome=\"ok\" or \"failed\"
  lockkeeper_exporter_info               the version of this program, and the store without secrets

Nobody is asked who they are: keep the port to those who may know.

Exit codes:
  0    ended by a signal
  64   wrong usage, or a store that does not list its locks
  69   the store is unusable; one that cannot be reached is waited for
  74   cannot listen there
  77   the store refused us

Examples:
  lockkeeper exporter --prefix orders/ --prefix cron/
  lockkeeper exporter --store redis://10.0.0.5 --listen 0.0.0.0:9464 --every 30s";

#[derive(Debug, Args)]
pub(crate) struct ExporterArguments {
    /// The address to listen at; port 0 is any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9464", value_parser = address)]
    listen: SocketAddr,

    /// Tell locks apart whose names start with this; can be repeated. Of several that fit, the longest
    /// counts
    #[arg(long, value_name = "P")]
    prefix: Vec<String>,

    /// Time between two looks
    #[arg(long, value_name = "DUR", value_parser = lockkeeper::parse_duration, default_value = "15s", allow_hyphen_values = true)]
    every: Duration,

    #[command(flatten)]
    store: StoreArguments,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address and a port are needed, such as 127.0.0.1:9464, or 0.0.0.0:9464 for every network"
            .to_owned()
    })
}

pub(crate) fn exporter(asked: &ExporterArguments, early: Early) -> Result<u8, Failure> {
    crate::wait_for(carry_out(asked, early))
}

async fn carry_out(asked: &ExporterArguments, early: Early) -> Result<u8, Failure> {
    let mut interrupt = Interrupt::listen(early)?;
    let prefixes = Prefixes::new(&asked.prefix)?;
    let every = checked(asked.every)?;
    if every > LONGEST {
        return Err(Failure::usage("--every is at most a day: what is older is no measurement"));
    }
    let url = asked.store.url()?;
    let listener =
        TcpListener::bind(asked.listen).await.map_err(|error| cannot_listen(asked, &error))?;
    let address = listener.local_addr().map_err(|error| cannot_listen(asked, &error))?;
    let (tell, told) = watch::channel(None);
    let mut watching =
        Watching { url, prefixes, every, keeper: None, totals: Totals::default(), tell };
    let outcome = tokio::select! {
        biased;
        // A service that is asked to end and does so has not failed.
        _ = interrupt.code() => Ok(exit::FINE),
        failure = watching.watch(address) => Err(failure),
        never = http::serve(listener, told) => match never {},
    };
    if let Some(keeper) = watching.keeper {
        keeper.close(LAST_WAIT).await;
    }
    outcome
}

fn cannot_listen(asked: &ExporterArguments, error: &std::io::Error) -> Failure {
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another program does: give another port with --listen".into()
        }
        std::io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        _ => error.to_string(),
    };
    Failure::new(exit::NO_OUTPUT, format!("cannot listen at {}: {why}", asked.listen))
}

/// Looks at a store again and again.
struct Watching {
    url: String,
    prefixes: Prefixes,
    every: Duration,
    keeper: Option<Keeper>,
    totals: Totals,
    tell: watch::Sender<Option<Arc<str>>>,
}

impl Watching {
    /// Why there is no point in going on.
    async fn watch(&mut self, address: SocketAddr) -> Failure {
        let mut is_away = false;
        for first in std::iter::successors(Some(true), |_| Some(false)) {
            let due = Instant::now() + self.every;
            let looked = match self.look().await {
                Ok(looked) => Some(looked),
                // With the first look one finds out what will never work.
                Err(failure) if first && failure.is_final => return failure.why,
                Err(failure) => {
                    if !std::mem::replace(&mut is_away, true) {
                        output::say(&format!("{}; goes on asking", failure.why.message));
                    }
                    None
                }
            };
            if looked.is_some() && std::mem::replace(&mut is_away, false) && !first {
                output::say("the store answers again");
            }
            self.totals.count(looked.is_some());
            let text = text::page(looked.as_ref(), &self.prefixes, &mut self.totals);
            self.tell.send_replace(Some(text.into()));
            if first {
                output::say(&format!("listening at http://{address}/metrics"));
            }
            sleep_until(due.max(Instant::now())).await;
        }
        unreachable!("the looks never end")
    }

    async fn look(&mut self) -> Result<Looked, NoLook> {
        let keeper = match &self.keeper {
            Some(keeper) => keeper,
            None => {
                let keeper = match timeout(CONNECT, claim::connect(&self.url)).await {
                    Ok(keeper) => keeper.map_err(NoLook::of_failure)?,
                    Err(_) => return Err(NoLook::slow("the store did not answer in time")),
                };
                if !keeper.capability().inspects {
                    let message =
                        format!("{keeper} does not list its locks: there is nothing to export");
                    return Err(NoLook { why: Failure::usage(message), is_final: true });
                }
                self.keeper.insert(keeper)
            }
        };
        let limit = SHORTEST_LIMIT.max(self.every * 2);
        match timeout(limit, look::take(keeper, &self.prefixes)).await {
            Ok(looked) => looked.map_err(NoLook::of_error),
            Err(_) => Err(NoLook::slow("the list of locks did not come in time")),
        }
    }
}

/// Why a look came to nothing.
struct NoLook {
    why: Failure,
    /// Whether another would come to nothing, too.
    is_final: bool,
}

impl NoLook {
    fn of_error(error: Error) -> Self {
        let is_final = !error.is_retryable();
        Self { why: error.into(), is_final }
    }

    fn of_failure(why: Failure) -> Self {
        let is_final = why.code != exit::NO_STORE;
        Self { why, is_final }
    }

    fn slow(message: &str) -> Self {
        Self { why: Failure::new(exit::NO_STORE, visible(message)), is_final: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_no_name() {
        for good in ["127.0.0.1:9464", "[::1]:0", "0.0.0.0:80"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [":9464", "9464", "127.0.0.1", "localhost:9464", "127.0.0.1:99999", ""] {
            assert!(address(bad).unwrap_err().contains("127.0.0.1:9464"), "{bad}");
        }
    }
}
