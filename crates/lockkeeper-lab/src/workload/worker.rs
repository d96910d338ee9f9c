//! One process of a run: tasks that ask, hold, write and release until told to stop.

mod aside;
mod tickets;

use super::recorder::{Recorder, nanos, now};
use super::resource::{Access, Writer};
use super::{PREFIX, Work, WorkArguments};
use crate::dice::Dice;
use crate::history::{Mode, Refusal, What};
use anyhow::Result;
use clap::Args;
use lockkeeper::event::EventKind as Told;
use lockkeeper::{ErrorKind, Guard, Keeper, Lock};
use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use tickets::Pool;
use tokio::sync::Notify;

/// The timeout of a claim that waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a store may be out of reach at the start.
const CONNECTING: Duration = Duration::from_secs(10);

/// Maps a note to its client and claim, and to the guard once there is one.
type Notes = HashMap<String, (String, u64, Weak<Guard>)>;

/// What every process of a run is told to do.
#[derive(Debug, Clone, Args)]
pub(crate) struct Orders {
    #[arg(long, value_enum)]
    pub(crate) work: Work,
    #[arg(long)]
    pub(crate) clients: u32,
    /// Tasks on a second runtime, which ends when the driver says so.
    #[arg(long)]
    pub(crate) aside: u32,
    #[arg(long)]
    pub(crate) names: u32,
    #[arg(long)]
    pub(crate) ttl_ms: u64,
    #[arg(long)]
    pub(crate) toil_ms: u64,
    #[arg(long)]
    pub(crate) seed: u64,
}

/// Which process one is, and what it is to do.
#[derive(Debug, Clone, Args)]
pub(crate) struct Post {
    #[arg(long)]
    pub(crate) process: String,
    #[arg(long)]
    pub(crate) number: u64,
    #[arg(long)]
    pub(crate) resources: SocketAddr,
    #[command(flatten)]
    pub(crate) orders: Orders,
}

impl Post {
    /// The same as command line arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let Orders { work, clients, aside, names, ttl_ms, toil_ms, seed } = &self.orders;
        let pairs = [
            ("--process", self.process.clone()),
            ("--number", self.number.to_string()),
            ("--resources", self.resources.to_string()),
            ("--work", work.word().to_owned()),
            ("--clients", clients.to_string()),
            ("--aside", aside.to_string()),
            ("--names", names.to_string()),
            ("--ttl-ms", ttl_ms.to_string()),
            ("--toil-ms", toil_ms.to_string()),
            ("--seed", seed.to_string()),
        ];
        pairs.into_iter().flat_map(|(key, value)| [key.to_owned(), value]).collect()
    }
}

/// State shared by the tasks of one process.
struct Shared {
    post: Post,
    keeper: Keeper,
    recorder: Recorder,
    claims: AtomicU64,
    notes: Mutex<Notes>,
    stop: Arc<AtomicBool>,
    /// Notified when the second runtime must end.
    end_aside: Arc<Notify>,
    /// Where tickets lie, if claims are handed out.
    pool: Option<Pool>,
}

/// Works until standard input ends, then releases everything.
///
/// # Errors
/// When the store or the resources cannot be reached at the start.
pub async fn work(arguments: WorkArguments) -> Result<()> {
    // If the driver is killed, this process must be killed too.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let keeper = connect(&arguments.store).await?;
    let recorder = Recorder::append_to(&arguments.history)?;
    let stop = Arc::new(AtomicBool::new(false));
    let end_aside = Arc::new(Notify::new());
    let (stopped, ends) = (stop.clone(), end_aside.clone());
    std::thread::spawn(move || {
        std::io::stdin().lock().bytes().map_while(Result::ok).for_each(|_| ends.notify_one());
        stopped.store(true, Ordering::SeqCst);
    });
    labour(keeper, (recorder, &arguments.history), arguments.post, stop, end_aside).await
}

/// Connects, also where the first fault comes before that is done.
async fn connect(store: &str) -> Result<Keeper> {
    let begun = Instant::now();
    loop {
        match lockkeeper::connect(store).await {
            Err(error)
                if error.kind() == ErrorKind::Unavailable && begun.elapsed() < CONNECTING =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            connected => return Ok(connected?),
        }
    }
}

/// Works until told to stop.
pub(crate) async fn labour(
    keeper: Keeper,
    (recorder, history): (Recorder, &Path),
    post: Post,
    stop: Arc<AtomicBool>,
    end_aside: Arc<Notify>,
) -> Result<()> {
    let pool = match post.orders.work {
        Work::Tickets => Some(Pool::beside(history)?),
        _ => None,
    };
    let claims = AtomicU64::new(post.number << 32);
    let notes = Mutex::default();
    let shared = Arc::new(Shared { post, keeper, recorder, claims, notes, stop, end_aside, pool });
    let told = tokio::spawn(listen(shared.clone()));
    let clients: Vec<_> = (0..shared.post.orders.clients)
        .map(|task| tokio::spawn(client(shared.clone(), task)))
        .collect();
    aside::work(&shared).await?;
    for client in clients {
        client.await??;
    }
    if let Some(pool) = &shared.pool {
        tickets::clear(&shared, pool).await;
    }
    shared.keeper.close(shared.ttl() * 3).await;
    told.abort();
    Ok(())
}

impl Shared {
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.post.orders.ttl_ms)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records the keeper's events about claims that wait or are held.
async fn listen(shared: Arc<Shared>) {
    let mut events = shared.keeper.events();
    while let Some(event) = events.next().await {
        let known = shared.notes().get(&*event.note).cloned();
        let Some((client, claim, guard)) = known else { continue };
        match event.kind {
            Told::Queued { .. } => {
                shared.recorder.write(when(event.at), &client, What::Queued { claim });
            }
            Told::Renewed => {
                let left = guard.upgrade().map_or(Duration::ZERO, |guard| guard.remaining());
                if !left.is_zero() {
                    let valid_until = now() + nanos(left);
                    let what = What::Renewed { claim, valid_until };
                    shared.recorder.write(when(event.at), &client, what);
                }
            }
            Told::Lost(_) => {
                shared.recorder.note(&client, What::Lost { claim });
            }
            _ => {}
        }
    }
}

/// The history's time of an event: when it happened, not when it was read. Otherwise a process that
/// was paused in between would seem to have renewed an expired claim.
pub(crate) fn when(event: SystemTime) -> u64 {
    // In this order: any delay between the two makes the stamp later, never earlier.
    let ago = nanos(event.elapsed().unwrap_or_default());
    now().saturating_sub(ago)
}

async fn client(shared: Arc<Shared>, task: u32) -> Result<()> {
    let Post { process, number, resources, orders } = &shared.post;
    let client = format!("{process}/{task}");
    let mut dice = Dice::new(orders.seed ^ (number << 8 | u64::from(task)));
    let mut access = Access::open(*resources, process).await?;
    // A client that polls for an unfair lock gets it only while the others rest.
    let rest = if shared.keeper.capability().fair { 3_000 } else { 4_000 * orders.toil_ms };
    while !shared.stop.load(Ordering::SeqCst) {
        turn(&shared, &client, &mut dice, &mut access).await?;
        tokio::time::sleep(Duration::from_micros(dice.roll(rest))).await;
    }
    Ok(())
}

/// One claim, from asking to releasing.
async fn turn(shared: &Shared, client: &str, dice: &mut Dice, access: &mut Access) -> Result<()> {
    let name = format!("{PREFIX}{}", dice.roll(u64::from(shared.post.orders.names)));
    let mode = match shared.post.orders.work {
        Work::Lock | Work::Cancel | Work::Tickets => Mode::Exclusive,
        Work::Rw if dice.roll(4) > 0 => Mode::Shared,
        Work::Rw => Mode::Exclusive,
        Work::Permits => Mode::Permit(2),
    };
    let claim = shared.claims.fetch_add(1, Ordering::SeqCst);
    let pool = shared.pool.as_ref();
    let found = match pool.filter(|_| tickets::only_finds(client)) {
        // Of those that find nothing there is nothing to record.
        Some(pool) => match pool.take(claim) {
            None => return Ok(()),
            found => found,
        },
        None => None,
    };
    let name = found.as_ref().map_or(name, |found| found.ticket.name.to_string());
    let note = claim.to_string();
    shared.notes().insert(note.clone(), (client.to_owned(), claim, Weak::new()));
    let mut turn = Turn { shared, client, claim, note, stage: Stage::Waiting };
    let asked = match &found {
        Some(found) => tickets::take_over(shared, client, claim, found).await,
        None => {
            shared.recorder.note(client, What::Ask { claim, name: name.clone(), mode });
            let lock = lock_of(&shared.keeper, &name, mode).note(&turn.note).ttl(shared.ttl());
            // A claim with a named owner can be re-entered, and takes another code path: test both.
            let lock = match dice.roll(4) {
                0 => lock.owner(&shared.keeper.owner("lab")),
                _ => lock,
            };
            ask(shared, dice, &lock).await
        }
    };
    match asked {
        Err(how) => {
            turn.stage = Stage::Over;
            shared.recorder.note(client, What::Refused { claim, how });
        }
        Ok(guard) => {
            let at = now();
            let valid_until = at + nanos(guard.remaining());
            let token = guard.token().map_or(0, |token| token.get());
            turn.holds(guard);
            shared.recorder.write(at, client, What::Granted { claim, token, valid_until });
            let by = Writer { client, claim, name: &name, token };
            let toil = Duration::from_millis(1 + dice.roll(shared.post.orders.toil_ms));
            if mode == Mode::Exclusive {
                write_both(toil, access, &by).await?;
            } else {
                look(toil, access, &by).await?;
            }
            match pool.filter(|_| tickets::wanders(dice)) {
                Some(pool) => turn.hand_out(pool, tickets::first_of(claim, found.as_ref())).await?,
                None => turn.release().await,
            }
        }
    }
    Ok(())
}

fn lock_of(keeper: &Keeper, name: &str, mode: Mode) -> Lock {
    match mode {
        Mode::Exclusive => keeper.lock(name),
        Mode::Shared => keeper.rw_lock(name).read(),
        Mode::Permit(of) => keeper.semaphore(name, of),
    }
}

async fn ask(shared: &Shared, dice: &mut Dice, lock: &Lock) -> Result<Guard, Refusal> {
    let asked = lock.acquire_within(PATIENCE);
    let outcome = if shared.post.orders.work == Work::Cancel && dice.roll(2) == 0 {
        let impatience = Duration::from_micros(dice.roll(20_000));
        match tokio::time::timeout(impatience, asked).await {
            Ok(outcome) => outcome,
            Err(_) => return Err(Refusal::Cancelled),
        }
    } else {
        asked.await
    };
    outcome.map_err(|error| match error.kind() {
        ErrorKind::TimedOut => Refusal::TimedOut,
        _ => Refusal::Unknown,
    })
}

/// Reads both resources, works, and writes both, trusting the lock.
async fn write_both(toil: Duration, access: &mut Access, by: &Writer<'_>) -> Result<()> {
    let (unfenced, fenced) = access.read(by).await?;
    tokio::time::sleep(toil).await;
    access.write(by, false, unfenced + 1).await?;
    // Without a token there is nothing to check.
    if by.token != 0 {
        access.write(by, true, fenced + 1).await?;
    }
    access.leave().await
}

/// Reads without writing, as a reader that shares the lock. Also marks the process as at work, so
/// that a fault can hit it.
async fn look(toil: Duration, access: &mut Access, by: &Writer<'_>) -> Result<()> {
    access.read(by).await?;
    tokio::time::sleep(toil).await;
    access.leave().await
}

/// A turn, which may end with its runtime at any point. The record then matches what happens: a
/// waiting claim is cancelled, a held claim is released.
struct Turn<'a> {
    shared: &'a Shared,
    client: &'a str,
    claim: u64,
    note: String,
    stage: Stage,
}

enum Stage {
    Waiting,
    Holding(Arc<Guard>),
    /// Nothing is left to record.
    Over,
}

impl Turn<'_> {
    fn holds(&mut self, guard: Guard) {
        let guard = Arc::new(guard);
        let known = (self.client.to_owned(), self.claim, Arc::downgrade(&guard));
        self.shared.notes().insert(self.note.clone(), known);
        self.stage = Stage::Holding(guard);
    }

    async fn release(&mut self) {
        let Stage::Holding(guard) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        let (recorder, claim) = (&self.shared.recorder, self.claim);
        recorder.note(self.client, What::Release { claim });
        match Arc::try_unwrap(guard) {
            // Releasing a lost claim fails; the loss was recorded when it was reported.
            Ok(guard) => drop(guard.release().await),
            // A task that is recording a renewal still has a reference, and drops it in a moment.
            Err(guard) => drop(guard),
        }
        recorder.note(self.client, What::Released { claim });
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let claim = self.claim;
        let cut_off = match self.stage {
            Stage::Over => None,
            Stage::Waiting => Some(What::Refused { claim, how: Refusal::Cancelled }),
            // Recorded before the guard is dropped, which releases the claim.
            Stage::Holding(_) => Some(What::Release { claim }),
        };
        cut_off.into_iter().for_each(|what| self.shared.recorder.note(self.client, what));
        self.shared.notes().remove(&self.note);
    }
}
