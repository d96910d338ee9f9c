//! A small program that takes locks on command, to be paused and killed.
//!
//! The first line of its input is the store's URL: not an argument, since every user can read those
//! and a URL may contain a password. Every further line is an order, answered with one line on its
//! output. An order begins with the slot it is about; the answer begins with the same word.
//!
//! | order | answer |
//! |---|---|
//! | `a take ttl=500 mode=exclusive name=x` | `a held 1024`, `a busy` or `a error TimedOut …` |
//! | `a token`, `a remaining`, `a held`, `a lost` | a number, milliseconds, `yes` or `no`, a reason |
//! | `a release` | `a released` or `a error Lost …` |
//! | `a drop`, `a detach` | `a dropped`, `a detached` |
//! | `a hand-out` | `a ticket lk1:…` |
//! | `a keep name=lk1:…`, `a give-back name=lk1:…` | `a kept 480`, `a given back` |
//! | `a visit rounds=20 room=/path name=x` | `a visited most=1 waited=12` |
//! | `a reserve count=2 rounds=9 name=x` | `a reserved 17`, once for each round |
//! | `a ping` | `a pong` |
//!
//! `take` knows `mode=exclusive|shared|permit:N`, `ttl=MS`, `wait=forever|none|MS`, `owner=ID`,
//! `id=CLAIM`, `min=MS`, `max=MS` and, last because it may contain blanks, `name=…`.
//!
//! It ends at once, releasing nothing, when its input ends: no taker outlives the process that
//! commands it.

mod order;

use crate::witness::Room;
use lockkeeper::backend::Backend;
use lockkeeper::{Error, Guard, Keeper, Result};
use order::Order;
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Runs the program; `open` opens the backend on which it executes its orders.
pub fn main<F>(open: impl FnOnce(String) -> F)
where
    F: Future<Output = Result<Arc<dyn Backend>>>,
{
    die_with_parent();
    let mut lines = std::io::stdin().lock().lines().map_while(std::io::Result::ok);
    let Some(url) = lines.next() else { exit(0) };
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return say("-", &format!("error Runtime {error}")),
        };
    let keeper = runtime.block_on(async { Keeper::new(open(url).await?) });
    let keeper = match keeper {
        Ok(keeper) => keeper,
        Err(error) => return say("-", &failed(&error)),
    };
    say("-", "ready");
    let taker = Arc::new(Taker { keeper, guards: Mutex::default() });
    for line in lines {
        let taker = taker.clone();
        runtime.spawn(async move {
            let order = Order::parse(&line);
            let answer = taker.obey(&order).await.unwrap_or_else(|error| failed(&error));
            say(&order.slot, &answer);
        });
    }
    exit(0);
}

/// The end of the input also ends this process, but not while it is paused.
fn die_with_parent() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL) {
        say("-", &format!("error Signal {error}"));
        exit(1);
    }
}

fn say(slot: &str, answer: &str) {
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "{slot} {}", answer.replace('\n', " ")).and_then(|()| out.flush());
    if said.is_err() {
        exit(0);
    }
}

fn failed(error: &Error) -> String {
    format!("error {:?} {error}", error.kind())
}

struct Taker {
    keeper: Keeper,
    guards: Mutex<HashMap<String, Guard>>,
}

impl Taker {
    async fn obey(&self, order: &Order) -> Result<String> {
        let slot = order.slot.as_str();
        Ok(match order.verb.as_str() {
            "ping" => "pong".into(),
            "take" => match self.take(order).await? {
                None => "busy".into(),
                Some(guard) => {
                    let token = token(&guard);
                    self.guards().insert(slot.into(), guard);
                    format!("held {token}")
                }
            },
            "token" => self.look(slot, token),
            "remaining" => self.look(slot, |guard| guard.remaining().as_millis().to_string()),
            "held" => self.look(slot, |guard| if guard.is_held() { "yes" } else { "no" }.into()),
            "lost" => self.look(slot, |guard| {
                guard.lost_reason().map_or_else(|| "no".into(), |reason| reason.to_string())
            }),
            "release" => match self.taken(slot) {
                Some(guard) => {
                    guard.release().await?;
                    "released".into()
                }
                None => "empty".into(),
            },
            "drop" => {
                drop(self.taken(slot));
                "dropped".into()
            }
            "detach" => {
                self.taken(slot).into_iter().for_each(Guard::detach);
                "detached".into()
            }
            "hand-out" => match self.taken(slot) {
                Some(guard) => format!("ticket {}", guard.hand_out().await?),
                None => "empty".into(),
            },
            "keep" => {
                let left = self.keeper.keep(&order.ticket()?).await?;
                format!("kept {}", left.as_millis())
            }
            "give-back" => {
                self.keeper.give_back(&order.ticket()?).await?;
                "given back".into()
            }
            "visit" => self.visit(order).await?,
            "reserve" => self.reserve(order).await?,
            other => format!("error Order there is no order {other:?}"),
        })
    }

    async fn take(&self, order: &Order) -> Result<Option<Guard>> {
        let lock = order.lock(&self.keeper)?;
        match order.word("wait") {
            None | Some("forever") => lock.acquire().await.map(Some),
            Some("none") => lock.try_acquire().await,
            Some(_) => lock.acquire_within(order.time("wait").unwrap_or_default()).await.map(Some),
        }
    }

    /// Enters and leaves a room that is guarded by nothing but the lock.
    async fn visit(&self, order: &Order) -> Result<String> {
        let lock = order.lock(&self.keeper)?;
        let room = Room::at(Path::new(order.word("room").unwrap_or_default())).map_err(broken)?;
        let (mut most, mut waited) = (0, 0);
        for round in 0..order.number("rounds").unwrap_or(1) {
            let guard = match lock.try_acquire().await? {
                Some(guard) => guard,
                None => {
                    waited += 1;
                    lock.acquire().await?
                }
            };
            let visitor = format!("{}-{}-{round}", std::process::id(), order.slot);
            most = most.max(room.visit(&visitor).map_err(broken)?);
            guard.release().await?;
            // So that the others get a turn.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(format!("visited most={most} waited={waited}"))
    }

    /// Reserves numbers again and again, and says so each time.
    async fn reserve(&self, order: &Order) -> Result<String> {
        let count = order.number("count").and_then(|count| count.try_into().ok()).unwrap_or(1);
        let name = order.word("name").unwrap_or_default();
        for _ in 1..order.number("rounds").unwrap_or(1) {
            let first = self.keeper.reserve(name, count, 0).await?;
            say(&order.slot, &format!("reserved {first}"));
        }
        Ok(format!("reserved {}", self.keeper.reserve(name, count, 0).await?))
    }

    fn look(&self, slot: &str, at: impl FnOnce(&Guard) -> String) -> String {
        self.guards().get(slot).map_or_else(|| "empty".into(), at)
    }

    fn taken(&self, slot: &str) -> Option<Guard> {
        self.guards().remove(slot)
    }

    fn guards(&self) -> MutexGuard<'_, HashMap<String, Guard>> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn token(guard: &Guard) -> String {
    guard.token().map_or_else(|| "-".into(), |token| token.to_string())
}

fn broken(error: std::io::Error) -> Error {
    Error::new(lockkeeper::ErrorKind::Store, "the room could not be used").caused_by(error)
}
