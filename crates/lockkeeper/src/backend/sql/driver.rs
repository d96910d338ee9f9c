//! The one background task of a keeper. It runs while something waits or is held.
//!
//! | what | when |
//! |---|---|
//! | a heartbeat for all waiters of the keeper | every half second, while something waits |
//! | a look at a name that is waited for | when the first of its claims may expire, and every two seconds |
//! | reading what other keepers tell | at once, where the server passes messages on |
//! | asking whether something was granted | else, after a twelfth of the time since the last grant or the last waiter, within 3 and 100 ms |
//! | asking whether something held was broken | every second, while something is held |
//!
//! Messages only save time: whatever they tell is found without them by the next look.

use super::context::{BEAT, Context, LOOK};
use super::error::Failure;
use super::requests::Listening;
use super::waiters::WaitEnd;
use crate::backend::Moment;
use crate::backend::support::sync::lock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long the driver stays when there is nothing to do: the next claim may come soon.
const LINGER: Duration = Duration::from_secs(2);
/// How often it is asked whether something held was broken.
const BROKEN: Duration = Duration::from_secs(1);
/// How often it is tried to be told of grants, after that failed.
const LISTEN: Duration = Duration::from_secs(2);
/// How often it is asked for grants where nobody tells of them.
const POLL: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(100));
/// The part of the time since the last grant after which it is asked again.
const PART: u32 = 12;

/// Starts the driver unless it runs.
pub(super) fn start(context: &Arc<Context>) {
    let mut driving = lock(&context.driving);
    if !std::mem::replace(&mut *driving, true) {
        let driver = Driver::new(context.clone());
        context.background.drive(driver.run());
    }
}

struct Driver {
    context: Arc<Context>,
    listening: Option<Listening>,
    next_beat: Moment,
    next_listen: Moment,
    next_poll: Moment,
    next_broken: Moment,
    /// When a waiter was last found to have been granted something.
    last_grant: Moment,
}

impl Driver {
    fn new(context: Arc<Context>) -> Self {
        let now = Moment::now();
        Self {
            context,
            listening: None,
            next_beat: now + BEAT,
            next_listen: now,
            next_poll: now,
            next_broken: now + BROKEN,
            last_grant: now,
        }
    }

    async fn run(mut self) {
        loop {
            let (waits, holds) = {
                let waiters = &self.context.waiters;
                (waiters.has_waiters(), waiters.has_alarms())
            };
            if waits || holds {
                let until = self.work(waits, holds).await;
                self.sleep(until).await;
            } else {
                match self.idle().await {
                    Some(again) => self = again,
                    None => return,
                }
            }
        }
    }

    /// Waits for something to do, without keeping the keeper; `None` when nothing came.
    async fn idle(self) -> Option<Self> {
        let Waiting { wake, gone } = Waiting::of(&self.context);
        let weak = Arc::downgrade(&self.context);
        let closing = self.context.waiters.is_closing();
        drop(self);
        let over = Moment::now() + if closing { Duration::ZERO } else { LINGER };
        tokio::select! {
            () = wake.notified() => {}
            () = over.reached() => {}
            () = gone.cancelled() => return None,
        }
        let context = weak.upgrade()?;
        let ends = {
            // Decided under the lock under which another is started.
            let mut driving = lock(&context.driving);
            let waiters = &context.waiters;
            let idle = !waiters.has_waiters() && !waiters.has_alarms();
            *driving = !(idle && (over.remaining().is_zero() || waiters.is_closing()));
            !*driving
        };
        if ends && context.waiters.is_closing() {
            // The driver itself may have connected again after the keeper was closed.
            context.requests.disconnect();
        }
        (!ends).then(|| Self::new(context))
    }

    /// Does what is due, and says when to be back.
    async fn work(&mut self, waits: bool, holds: bool) -> Moment {
        let now = Moment::now();
        let mut next = now + LOOK;
        if waits {
            if self.next_beat <= now {
                self.beat().await;
                self.next_beat = Moment::now() + BEAT;
            }
            self.listen().await;
            if self.listening.is_none() {
                self.poll().await;
                next = next.min(self.next_poll);
            }
            next = next.min(self.next_beat).min(self.look());
        }
        if holds {
            if self.next_broken <= now {
                self.find_broken().await;
                self.next_broken = Moment::now() + BROKEN;
            }
            next = next.min(self.next_broken);
        }
        next
    }

    async fn beat(&self) {
        if let Err(failure) = self.context.beat(Duration::ZERO).await {
            let error = self.context.explain(failure);
            tracing::debug!(%error, "a heartbeat was not answered");
            self.context.fail_if_silent(&error).await;
        }
    }

    /// Subscribes, if that is to be had. What was told before that is found by a look.
    async fn listen(&mut self) {
        let requests = &self.context.requests;
        if self.listening.is_some() || self.next_listen > Moment::now() || !requests.can_listen() {
            return;
        }
        match requests.listen(&self.context.process).await {
            Ok(listening) => {
                self.listening = listening;
                self.context.waiters.look_at_all();
            }
            Err(failure) => {
                let error = self.context.explain(failure);
                tracing::debug!(%error, "no subscription: waiters poll meanwhile");
            }
        }
        self.next_listen = Moment::now() + LISTEN;
    }

    /// Asks whether something was granted.
    async fn poll(&mut self) {
        let now = Moment::now();
        if self.next_poll > now {
            return;
        }
        let names = self.context.waiters.names();
        if let Ok(granted) = self.context.requests.granted(&self.context.process, &names).await {
            for id in granted {
                if self.context.waiters.is_untold(&id) {
                    self.last_grant = now;
                    self.context.waiters.tell(&id, WaitEnd::Handed);
                }
            }
        }
        let now = Moment::now();
        let quiet = now.since(self.last_grant.max(self.context.waiters.newest()));
        self.next_poll = now + (quiet / PART).clamp(POLL.0, POLL.1);
    }

    /// Has names looked at that are due, beside each other; when the next is.
    fn look(&self) -> Moment {
        let (due, next) = self.context.waiters.due();
        for name in due {
            let context = self.context.clone();
            self.context.background.drive(async move {
                let after = match context.look(&name).await {
                    Ok(after) => after.unwrap_or(LOOK),
                    Err(failure) => {
                        note(&context, failure);
                        BEAT
                    }
                };
                // What expires now may do so a moment later by the database's clock.
                let after = after.clamp(Duration::from_millis(5), LOOK);
                context.waiters.look_again(&name, Moment::now() + after);
                context.waiters.wake.notify_one();
            });
        }
        next.unwrap_or_else(|| Moment::now() + LOOK)
    }

    async fn find_broken(&self) {
        match self.context.requests.broken(&self.context.process).await {
            Ok(broken) => {
                for (name, id, reason) in broken {
                    self.context.ring(name, id, reason);
                }
            }
            Err(failure) => note(&self.context, failure),
        }
    }

    /// Sleeps until then, until woken, or until another keeper tells something.
    async fn sleep(&mut self, until: Moment) {
        let told = async {
            match &mut self.listening {
                Some(listening) => listening.messages.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = until.reached() => {}
            () = self.context.waiters.wake.notified() => {}
            message = told => match message {
                Some(message) => self.hear(&message),
                None => {
                    self.listening = None;
                    self.next_listen = Moment::now() + Duration::from_millis(50);
                    self.context.waiters.look_at_all();
                }
            },
        }
    }

    /// What another keeper told: a hint, and nothing is believed of it that is not found in the
    /// tables.
    fn hear(&mut self, message: &str) {
        match message.split_once(' ') {
            // Where nobody waits for it any more, it expires soon.
            Some(("handed", id)) => _ = self.context.waiters.tell(id, WaitEnd::Handed),
            Some(("broken", _)) => self.next_broken = Moment::now(),
            _ => {}
        }
    }
}

/// What an idle driver waits for.
struct Waiting {
    wake: Arc<Notify>,
    gone: CancellationToken,
}

impl Waiting {
    fn of(context: &Context) -> Self {
        Self { wake: context.waiters.wake.clone(), gone: context.gone.clone() }
    }
}

fn note(context: &Context, failure: Failure) {
    let error = context.explain(failure);
    tracing::debug!(%error, "a look at the lock tables failed");
}
