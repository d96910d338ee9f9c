//! One direction of one connection.

use super::Shared;
use super::plan::{Afterwards, Direction, Flow, Framing};
use super::reader::{Reader, Step};
use super::resp::{self, Head};
use crate::dice::Dice;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Instant;

/// The most bytes that are buffered for one direction; beyond that the sender has to wait.
const MOST: usize = 1 << 20;

/// How long the server has to execute a request whose answer is suppressed.
const CARRIED_OUT: Duration = Duration::from_millis(100);

/// The lasting damage to a connection.
#[derive(Debug, Default)]
pub(super) struct Wounds {
    /// Bytes were swallowed.
    pub(super) lost: AtomicBool,
    /// Nothing more is sent to the client.
    pub(super) silent: AtomicBool,
}

struct Chunk {
    due: Instant,
    /// Kept until the count of releases exceeds this.
    held: Option<u64>,
    bytes: Vec<u8>,
}

/// Reads one side, writes the other, and buffers what is not due yet.
pub(super) struct Pump<'a> {
    shared: &'a Shared,
    wounds: &'a Wounds,
    direction: Direction,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    dice: Dice,
    queue: VecDeque<Chunk>,
    queued: usize,
    /// When the last piece in the queue is due: later pieces must not overtake it.
    last_due: Instant,
    next_drop: Instant,
    /// The beginning of a reply whose end has not arrived yet.
    partial: Vec<u8>,
    framing: Framing,
    reader: Reader,
    /// When the connection ends in place of an answer.
    ends: Option<Instant>,
    ended: bool,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        wounds: &'a Wounds,
        direction: Direction,
        (from, to): (ReadHalf<'a>, WriteHalf<'a>),
        connection: u64,
    ) -> Self {
        let now = Instant::now();
        Self {
            shared,
            wounds,
            direction,
            from,
            to,
            dice: Dice::new(shared.seed ^ (connection << 1 | direction as u64)),
            queue: VecDeque::new(),
            queued: 0,
            last_due: now,
            next_drop: now,
            partial: Vec::new(),
            framing: shared.framing,
            reader: (shared.readers.0)(),
            ends: None,
            ended: false,
        }
    }

    /// Runs until the end of the stream has been forwarded, or one side broke off.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut plan = self.shared.plan.subscribe();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let (flow, releases) = {
                let plan = plan.borrow_and_update();
                (plan.flows[self.direction as usize], plan.releases)
            };
            if self.ends.is_some_and(|ends| ends <= Instant::now()) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if flow == Flow::Swallow {
                self.swallow_queue();
            } else if self.ended && self.queue.is_empty() && !self.is_lost() {
                return self.to.shutdown().await;
            }
            let due = self.due(flow, releases);
            let wake = due.into_iter().chain(self.ends).min();
            if due.is_some_and(|due| due <= Instant::now()) {
                self.deliver(flow).await?;
                continue;
            }
            let reading = !self.ended && self.queued < MOST;
            tokio::select! {
                biased;
                _ = plan.changed() => {}
                () = tokio::time::sleep_until(wake.unwrap_or(self.last_due)), if wake.is_some() => {}
                read = self.from.read(&mut buffer), if reading => match read {
                    Ok(0) => self.end(),
                    Ok(length) => self.take(&buffer[..length]),
                    Err(_) if self.flow() == Flow::Swallow => self.end(),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// The current flow, not the flow when the wait for bytes began: an order given before the
    /// bytes were sent must apply to them.
    fn flow(&self) -> Flow {
        self.shared.plan.borrow().flows[self.direction as usize]
    }

    fn is_lost(&self) -> bool {
        self.wounds.lost.load(Ordering::SeqCst)
    }

    fn due(&self, flow: Flow, releases: u64) -> Option<Instant> {
        let front = self.queue.front()?;
        if front.held.is_some_and(|held| releases <= held) {
            return None;
        }
        match flow {
            Flow::Hold | Flow::Swallow => None,
            Flow::Drip { .. } => Some(front.due.max(self.next_drop)),
            Flow::Pass | Flow::Delay { .. } => Some(front.due),
        }
    }

    async fn deliver(&mut self, flow: Flow) -> io::Result<()> {
        let Some(mut chunk) = self.queue.pop_front() else { return Ok(()) };
        if let Flow::Drip { bytes, every } = flow {
            let rest = chunk.bytes.split_off(bytes.max(1).min(chunk.bytes.len()));
            if !rest.is_empty() {
                self.queue.push_front(Chunk { due: chunk.due, held: None, bytes: rest });
            }
            self.next_drop = Instant::now() + every;
        }
        self.queued -= chunk.bytes.len();
        self.to.write_all(&chunk.bytes).await?;
        self.shared.tally.passed(self.direction, chunk.bytes.len());
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
        if self.flow() == Flow::Swallow {
            self.wounds.lost.store(true, Ordering::SeqCst);
        }
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.push(&rest);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.flow() == Flow::Swallow {
            self.swallow(bytes.len());
        } else if self.direction == Direction::ToServer {
            self.say(bytes);
        } else if self.framing == Framing::Burst {
            self.reply(bytes);
        } else {
            self.partial.extend_from_slice(bytes);
            self.replies();
        }
    }

    /// Shows the reader what a client sent, and forwards it.
    fn say(&mut self, bytes: &[u8]) {
        // Read before the reader runs: a `let_go` that is triggered by the reader must still count.
        let releases = self.shared.plan.borrow().releases;
        let step = (self.reader)(bytes);
        self.push(bytes);
        match step {
            Step::Pass => {}
            Step::Hold => {
                if let Some(last) = self.queue.back_mut() {
                    last.held = Some(releases);
                }
            }
            Step::EndInstead => {
                self.wounds.silent.store(true, Ordering::SeqCst);
                // So that the server has executed it before the client sends it again.
                self.ends = Some(Instant::now() + CARRIED_OUT);
            }
        }
    }

    /// Forwards every complete reply in the buffer.
    fn replies(&mut self) {
        let mut partial = std::mem::take(&mut self.partial);
        loop {
            match resp::head(&partial) {
                Head::Incomplete => break,
                Head::Reply { length, asked } => {
                    let rest = partial.split_off(length);
                    if asked {
                        self.reply(&partial)
                    } else {
                        self.push(&partial)
                    }
                    partial = rest;
                }
                Head::Foreign => {
                    self.framing = Framing::Burst;
                    self.reply(&partial);
                    partial.clear();
                    break;
                }
            }
        }
        self.partial = partial;
    }

    fn reply(&mut self, bytes: &[u8]) {
        if self.wounds.silent.load(Ordering::SeqCst) {
            return self.push(bytes);
        }
        match self.shared.reply() {
            None => self.push(bytes),
            Some(afterwards) => {
                self.shared.tally.swallowed(self.direction, bytes.len());
                if afterwards == Afterwards::Silence {
                    self.wounds.silent.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let silent =
            self.direction == Direction::ToClient && self.wounds.silent.load(Ordering::SeqCst);
        if silent {
            return self.shared.tally.swallowed(self.direction, bytes.len());
        }
        let mut due = Instant::now();
        match self.flow() {
            Flow::Pass => {}
            Flow::Swallow => return self.swallow(bytes.len()),
            Flow::Delay { base, jitter } => {
                due += lateness(&mut self.dice, base, jitter);
                self.shared.tally.hindered(bytes.len());
            }
            Flow::Hold | Flow::Drip { .. } => self.shared.tally.hindered(bytes.len()),
        }
        self.last_due = self.last_due.max(due);
        self.queued += bytes.len();
        let bytes = bytes.to_vec();
        self.queue.push_back(Chunk { due: self.last_due, held: None, bytes });
    }

    fn swallow(&mut self, bytes: usize) {
        self.shared.tally.swallowed(self.direction, bytes);
        self.wounds.lost.store(true, Ordering::SeqCst);
    }

    /// Swallows the bytes that were queued when the flow changed.
    fn swallow_queue(&mut self) {
        let under_way = self.queued + self.partial.len();
        if under_way > 0 {
            self.queue.clear();
            self.partial.clear();
            self.queued = 0;
            self.swallow(under_way);
        }
    }
}

/// The delay of the next bytes.
pub(super) fn lateness(dice: &mut Dice, base: Duration, jitter: Duration) -> Duration {
    let most = u64::try_from(jitter.as_micros()).unwrap_or(u64::MAX);
    base + Duration::from_micros(dice.roll(most.saturating_add(1)))
}
