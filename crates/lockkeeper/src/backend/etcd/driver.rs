//! The driver of the watches: the one background task of a keeper on etcd.
//!
//! It keeps the stream open on which etcd tells what happens to keys, passes on what it reads, and
//! deletes the keys of detached claims when they are due. It ends with its keeper, or when the
//! keeper is closed, and is started again when it is next needed.
//!
//! Nothing depends on the driver for safety. While it is not there, or its stream is broken,
//! renewals read the holders' keys themselves, waiting claims look every ten seconds and with
//! every break of the stream, and heartbeats delete what is due.

use super::cleanup::Cleanup;
use super::client::Client;
use super::loss;
use super::protocol::{
    RangeResponse, WatchCancelRequest, WatchCreateRequest, WatchOrder, WatchRequest, WatchResponse,
    path,
};
use super::requests;
use super::waiters::{Assignment, Order, Subscriber, WatchTable};
use crate::backend::{Alarm, LossReason, Moment};
use crate::background::Background;
use crate::error::Result;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

/// The pause before a stream is opened again. Also after one that worked: a member that accepts
/// streams and ends them must not be asked without pause.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The pause doubles until this one while no stream can be opened.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Reads the stream. At most one is in charge of a keeper's watches: a driver that was closed and
/// has not noticed yet finds no table any more, and ends.
struct Driver {
    client: Arc<Client>,
    cleanup: Arc<Cleanup>,
    assigned: Assignment,
}

/// The sending half of the stream.
type Requests = mpsc::UnboundedSender<WatchRequest>;
/// Looks at the keys of watches that may have missed something.
type Looks = FuturesUnordered<Look>;
type Look = BoxFuture<'static, (i64, Result<Found>)>;

/// What a look at a holder's key found.
enum Found {
    /// It is there, as of this revision.
    Held(Option<i64>),
    Lost(LossReason),
}

/// What came of a message. `Told` also where there is no subscriber any more.
enum Heard {
    Told,
    /// The watch with this number may have missed what happened to this key before it began; a read
    /// of the key must tell.
    Missed {
        id: i64,
        key: Vec<u8>,
        created: i64,
    },
    /// The stream is of no use any more.
    Useless,
}

/// Why the driver stopped reading a stream. Only a broken one puts the holders in jeopardy.
enum Ended {
    /// The connection broke or was given up.
    Broken,
    /// A watch needs a new stream; etcd is well.
    Useless,
    /// The keeper is gone or closed.
    Closed,
}

/// What [`Watches`](super::waiters::Watches) starts drivers with.
pub(super) fn starter(
    client: Arc<Client>,
    cleanup: Arc<Cleanup>,
    background: Background,
) -> impl Fn(Assignment) + Send + Sync + 'static {
    move |assigned| {
        let (client, cleanup) = (client.clone(), cleanup.clone());
        background.drive(Driver { client, cleanup, assigned }.drive());
    }
}

impl Driver {
    /// Opens a stream whenever there is something to watch, and reads it until it ends. After its
    /// end no watch counts as live until it is confirmed on the next stream. If it broke, holders
    /// are told that they are in jeopardy, and renew.
    async fn drive(mut self) {
        let mut pause = FIRST_PAUSE;
        while self.wait_for_something().await {
            let (requests, sent) = mpsc::unbounded_channel();
            self.begin_due(&requests);
            let stream = self.client.stream(path::WATCH, UnboundedReceiverStream::new(sent));
            let ended = match stream.await {
                Ok((number, stream)) => {
                    pause = FIRST_PAUSE;
                    self.assigned.with_table(|table| table.connected(number));
                    self.read(number, stream, &requests).await
                }
                Err(failure) => {
                    let error = failure.explain(self.client.shown());
                    tracing::debug!(%error, "no watch could be opened");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    Ended::Broken
                }
            };
            self.assigned.with_table(WatchTable::disconnected);
            match ended {
                Ended::Closed => return,
                Ended::Broken => {
                    let holders = self.assigned.with_table(WatchTable::endanger);
                    holders.unwrap_or_default().iter().for_each(Alarm::endanger);
                }
                Ended::Useless => {}
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until something is to be watched now; `false` when the keeper is gone. No stream is
    /// open meanwhile: a keeper without watches costs etcd none.
    async fn wait_for_something(&mut self) -> bool {
        loop {
            let state = self.assigned.with_table(|table| (table.advance(), table.any_due()));
            let next = match state {
                None => return false,
                Some((_, true)) => return true,
                Some((next, false)) => next,
            };
            tokio::select! {
                order = self.assigned.orders.recv() => if order.is_none() { return false },
                () = reached(next) => {}
            }
            self.delete_detached().await;
        }
    }

    /// Reads until the stream ends. Never awaits a read of a key in line: looks run beside the
    /// stream, so that one slow answer does not delay what is told to other holders.
    async fn read(
        &mut self,
        number: u64,
        mut stream: Streaming<WatchResponse>,
        requests: &Requests,
    ) -> Ended {
        let mut next = self.begin_due(requests);
        let mut looks = Looks::new();
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(message)) => match self.hear(message, requests) {
                        Heard::Told => {}
                        Heard::Missed { id, key, created } => {
                            looks.push(self.look(id, key, created));
                        }
                        Heard::Useless => return Ended::Useless,
                    },
                    Ok(None) => return Ended::Broken,
                    Err(error) => {
                        tracing::debug!(%error, "the watch broke");
                        return Ended::Broken;
                    }
                },
                Some((id, found)) = looks.next(), if !looks.is_empty() => match found {
                    Ok(found) => self.conclude(id, found),
                    // What cannot be found out is tried again, on a new stream.
                    Err(_) => return Ended::Broken,
                },
                order = self.assigned.orders.recv() => match order {
                    None => return Ended::Closed,
                    Some(Order::Begin(id)) => {
                        let create = self.assigned.with_table(|table| table.begin(id)).flatten();
                        create.into_iter().for_each(|create| begin(create, requests));
                    }
                    Some(Order::End(watch_id)) => end(watch_id, requests),
                    Some(Order::Schedule) => next = self.begin_due(requests),
                },
                () = self.client.replaced(number) => return Ended::Broken,
                () = reached(next) => {
                    self.delete_detached().await;
                    next = self.begin_due(requests);
                }
            }
        }
    }

    /// Begins what is due; says when to look again.
    fn begin_due(&self, requests: &Requests) -> Option<Moment> {
        self.assigned.with_table(|table| {
            let next = table.advance();
            table.begin_due().into_iter().for_each(|create| begin(create, requests));
            next
        })?
    }

    /// Deletes the keys of detached claims whose time is over.
    async fn delete_detached(&self) {
        for claim in self.assigned.with_table(WatchTable::take_detached).unwrap_or_default() {
            // What fails here is deleted with a heartbeat.
            let _ = self.cleanup.run_if_due(claim).await;
        }
    }

    /// Passes on what etcd said. A waiter is only woken, and reads for itself. A holder is told of
    /// a loss that an event proves; what no event can prove is left to a look.
    fn hear(&self, message: WatchResponse, requests: &Requests) -> Heard {
        let id = message.watch_id;
        let noted = self.assigned.with_table(|table| {
            let Some(entry) = table.watches.get_mut(&id) else {
                // A watch that was ended here before etcd confirmed it: etcd must end it too.
                if !message.canceled {
                    end(id, requests);
                }
                return Err(Heard::Told);
            };
            if message.canceled {
                // The revision it was to begin with is compacted: then from now on. On a new
                // stream, since this one does not let a number be used again.
                entry.seen = None;
                return Err(Heard::Useless);
            }
            // The watch began after the revision that it was confirmed with. What happened before,
            // but after what was seen, is found only by looking now.
            let began = requests::revision_of(message.header);
            let missed =
                message.created && entry.from == 0 && entry.seen.is_none_or(|seen| seen < began);
            entry.live |= !missed;
            let moved = match &entry.subscriber {
                Subscriber::Holder { created, lease, .. } => {
                    message.events.iter().any(|event| loss::is_moved(event, *created, *lease))
                }
                Subscriber::Waiter(_) => false,
            };
            // That a renewal may believe in the session is over: it has to look where the key is.
            entry.live &= !moved;
            Ok((entry.subscriber.clone(), entry.key.clone(), missed, moved))
        });
        // Outside of the lock: the alarm may call back.
        let (subscriber, key, missed, moved) = match noted {
            Some(Ok(noted)) => noted,
            Some(Err(heard)) => return heard,
            None => return Heard::Useless,
        };
        match subscriber {
            Subscriber::Waiter(look) => {
                if missed || !message.events.is_empty() {
                    look.notify_one();
                }
                Heard::Told
            }
            Subscriber::Holder { alarm, created, .. } => {
                let lost = message.events.into_iter().find_map(|event| loss::told(event, created));
                match lost {
                    Some(reason) => alarm.ring(reason),
                    None if moved => alarm.endanger(),
                    None => {}
                }
                if missed { Heard::Missed { id, key, created } } else { Heard::Told }
            }
        }
    }

    /// Looks whether a holder's key is still there, for a watch that may have begun too late to
    /// tell. Beside the reading of the stream: other holders are not to wait for it.
    fn look(&self, id: i64, key: Vec<u8>, created: i64) -> Look {
        let client = self.client.clone();
        Box::pin(async move {
            let request = requests::one(key.clone());
            let found: RangeResponse = match client.call(path::RANGE, &request).await {
                Ok(found) => found,
                Err(error) => return (id, Err(error)),
            };
            match loss::found(&client, &key, created, &found).await {
                Some(reason) => (id, Ok(Found::Lost(reason))),
                None => (id, Ok(Found::Held(found.header.map(|header| header.revision)))),
            }
        })
    }

    /// Draws the conclusions from a look at a holder's key. The watch may have ended meanwhile;
    /// then nobody is left to be told.
    fn conclude(&self, id: i64, found: Found) {
        let alarm = self.assigned.with_table(|table| {
            let entry = table.watches.get_mut(&id)?;
            let Subscriber::Holder { alarm, .. } = &entry.subscriber else { return None };
            match found {
                Found::Lost(reason) => Some((alarm.clone(), reason)),
                Found::Held(seen) => {
                    entry.seen = seen;
                    entry.live = true;
                    None
                }
            }
        });
        // Outside of the lock: the alarm may call back.
        if let Some((alarm, reason)) = alarm.flatten() {
            alarm.ring(reason);
        }
    }
}

// A stream that broke is noticed by its reader, so neither of these fails.

fn begin(create: WatchCreateRequest, requests: &Requests) {
    let _ = requests.send(WatchRequest { order: Some(WatchOrder::Create(create)) });
}

fn end(watch_id: i64, requests: &Requests) {
    let cancel = WatchOrder::Cancel(WatchCancelRequest { watch_id });
    let _ = requests.send(WatchRequest { order: Some(cancel) });
}

/// Never, where there is nothing to wait for.
async fn reached(moment: Option<Moment>) {
    match moment {
        Some(moment) => moment.reached().await,
        None => std::future::pending().await,
    }
}
