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
use super::requests::{Listening, Told};
use super::waiters::WaitEnd;
use crate::backend::Moment;
use crate::backend::support::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
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
/// After how long a grant of this keeper is taken for one whose answer was lost.
const ANSWERED: Duration = Duration::from_millis(50);
/// The part of the time since the last grant after which it is asked again.
const PART: u32 = 12;

/// Starts the driver unless it runs. A keeper that was closed is in use again.
pub(super) fn start(context: &Arc<Context>) {
    context.waiters.reopen();
    let mut driving = lock(&context.driving);
    if !std::mem::replace(&mut *driving, true) {
        context.background.drive(Driver::new(context).run());
    }
}

/// Keeps the keeper's [`Context`] only while there is something to do, not while it sleeps: what was
/// released wakes nobody, and a keeper that is gone must take its thread and connections with it at
/// once, not when the sleep is over.
struct Driver {
    context: Weak<Context>,
    wake: Arc<Notify>,
    gone: CancellationToken,
    listening: Option<Listening>,
    next_beat: Moment,
    next_listen: Moment,
    next_poll: Moment,
    next_broken: Moment,
    /// When a waiter was last found to have been granted something.
    last_grant: Moment,
    /// Claims that this keeper granted itself and has not told, and since when that is known.
    own_grants: HashMap<String, Moment>,
}

impl Driver {
    fn new(context: &Arc<Context>) -> Self {
        let now = Moment::now();
        Self {
            context: Arc::downgrade(context),
            wake: context.waiters.wake.clone(),
            gone: context.gone.clone(),
            listening: None,
            next_beat: now + BEAT,
            next_listen: now,
            next_poll: now,
            next_broken: now + BROKEN,
            last_grant: now,
            own_grants: HashMap::new(),
        }
    }

    async fn run(mut self) {
        while let Some(context) = self.context.upgrade() {
            let (waits, holds) = (context.waiters.has_waiters(), context.waiters.has_alarms());
            if waits || holds {
                let until = self.work(&context, waits, holds).await;
                drop(context);
                self.sleep(until).await;
            } else {
                // The connection for messages ends here: nobody is to be told anything.
                self = Self::new(&context);
                drop(context);
                if !self.idle().await {
                    return;
                }
            }
        }
    }

    /// Waits for something to do; whether there may be.
    async fn idle(&self) -> bool {
        let closing = self.context.upgrade().is_some_and(|context| context.waiters.is_closing());
        let over = Moment::now() + if closing { Duration::ZERO } else { LINGER };
        tokio::select! {
            () = self.wake.notified() => {}
            () = over.reached() => {}
            () = self.gone.cancelled() => return false,
        }
        let Some(context) = self.context.upgrade() else { return false };
        let goes_on = {
            // Decided under the lock under which another is started.
            let mut driving = lock(&context.driving);
            let waiters = &context.waiters;
            let idle = !waiters.has_waiters() && !waiters.has_alarms();
            *driving = !(idle && (over.remaining().is_zero() || waiters.is_closing()));
            *driving
        };
        if !goes_on {
            // The driver itself may have connected again after the keeper was closed.
            context.let_go_if_closed();
        }
        goes_on
    }

    /// Does what is due, and says when to be back.
    async fn work(&mut self, context: &Arc<Context>, waits: bool, holds: bool) -> Moment {
        let now = Moment::now();
        let mut next = now + LOOK;
        if waits {
            if self.next_beat <= now {
                beat(context).await;
                self.next_beat = Moment::now() + BEAT;
            }
            self.listen(context).await;
            if self.listening.is_none() {
                self.poll(context).await;
                next = next.min(self.next_poll);
            }
            next = next.min(self.next_beat).min(look(context));
        }
        if holds {
            if self.next_broken <= now {
                find_broken(context).await;
                self.next_broken = Moment::now() + BROKEN;
            }
            next = next.min(self.next_broken);
        }
        next
    }

    /// Subscribes, if that is to be had. What was told before that is found by a look.
    async fn listen(&mut self, context: &Context) {
        let requests = &context.requests;
        if self.listening.is_some() || self.next_listen > Moment::now() || !requests.can_listen() {
            return;
        }
        match requests.listen(&context.process).await {
            Ok(listening) => {
                self.listening = listening;
                context.waiters.look_at_all();
            }
            Err(failure) => {
                let error = context.explain(failure);
                tracing::debug!(%error, "no subscription: waiters poll meanwhile");
            }
        }
        self.next_listen = Moment::now() + LISTEN;
    }

    /// Asks whether something was granted.
    async fn poll(&mut self, context: &Context) {
        let now = Moment::now();
        if self.next_poll > now {
            return;
        }
        let names = context.waiters.names();
        if let Ok(granted) = context.requests.granted(&context.process, &names).await {
            let before = std::mem::take(&mut self.own_grants);
            for Told { id, handed } in granted {
                if !context.waiters.is_untold(&id) {
                    continue;
                }
                // A grant of this keeper is seen in the tables a little before it is answered, while
                // its commit waits for the disk. To confirm it then would be a commit in vain.
                let since = before.get(&id).copied().unwrap_or(now);
                if handed || now.since(since) >= ANSWERED {
                    self.last_grant = now;
                    context.waiters.tell(&id, WaitEnd::Handed);
                } else {
                    self.own_grants.insert(id, since);
                }
            }
        }
        let now = Moment::now();
        let quiet = now.since(self.last_grant.max(context.waiters.newest()));
        self.next_poll = now + (quiet / PART).clamp(POLL.0, POLL.1);
    }

    /// Sleeps until then, until woken, until another keeper tells something, or until this one is
    /// gone.
    async fn sleep(&mut self, until: Moment) {
        let told = async {
            match &mut self.listening {
                Some(listening) => listening.messages.recv().await,
                None => std::future::pending().await,
            }
        };
        let message = tokio::select! {
            () = until.reached() => return,
            () = self.wake.notified() => return,
            () = self.gone.cancelled() => return,
            message = told => message,
        };
        let Some(context) = self.context.upgrade() else { return };
        match message {
            Some(message) => self.hear(&context, &message),
            None => {
                self.listening = None;
                self.next_listen = Moment::now() + Duration::from_millis(50);
                context.waiters.look_at_all();
            }
        }
    }

    /// What another keeper told: a hint, and nothing is believed of it that is not found in the
    /// tables.
    fn hear(&mut self, context: &Context, message: &str) {
        match message.split_once(' ') {
            // Where nobody waits for it any more, it expires soon.
            Some(("handed", id)) => _ = context.waiters.tell(id, WaitEnd::Handed),
            Some(("broken", _)) => self.next_broken = Moment::now(),
            _ => {}
        }
    }
}

async fn beat(context: &Context) {
    if let Err(failure) = context.beat(Duration::ZERO).await {
        let error = context.explain(failure);
        tracing::debug!(%error, "a heartbeat was not answered");
        context.fail_if_silent(&error).await;
    }
}

/// Has names looked at that are due, beside each other; when the next is.
fn look(context: &Arc<Context>) -> Moment {
    let (due, next) = context.waiters.due();
    for name in due {
        let context = context.clone();
        context.background.clone().drive(async move {
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
            context.let_go_if_closed();
        });
    }
    next.unwrap_or_else(|| Moment::now() + LOOK)
}

async fn find_broken(context: &Arc<Context>) {
    match context.requests.broken(&context.process).await {
        Ok(broken) => {
            for (name, id, reason) in broken {
                context.ring(name, id, reason);
            }
        }
        Err(failure) => note(context, failure),
    }
}

fn note(context: &Context, failure: Failure) {
    let error = context.explain(failure);
    tracing::debug!(%error, "a look at the lock tables failed");
}
