//! The task of a session: reads what the server says, shows that we live, and keeps the estate.

use super::estate::Duty;
use super::jute::Reader;
use super::layout::NODE;
use super::request::{Answer, EVENT, Event, Request};
use super::route::{Connection, Writer};
use super::session::{Link, Phase, State};
use super::trouble::{Fault, refusal};
use super::watchers::Told;
use super::wire::Then;
use super::{broken, record};
use crate::backend::{Alarm, LossReason, Moment};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A sign of life is given so many times in a session's timeout.
const BEATS: u32 = 6;
/// The first pause between two tries to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// No answer is longer: ZooKeeper itself takes no more than a megabyte, and lists a little more.
const LONGEST: usize = 64 << 20;

/// Puts a new driver in charge, on the runtime of the caller.
pub(super) fn start(link: &Arc<Link>, state: &mut State, connection: Option<Connection>) {
    // Without a runtime nobody can wait for an answer either.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let driver = Driver { link: link.clone(), number: state.next_driver() };
    if let Some(connection) = &connection {
        state.wire.connect(&connection.writer);
        link.set_phase(Phase::Connected);
    }
    runtime.spawn(driver.run(connection));
}

struct Driver {
    link: Arc<Link>,
    number: u64,
}

impl Driver {
    async fn run(self, mut connection: Option<Connection>) {
        loop {
            let mut current = match connection.take() {
                Some(connection) => connection,
                None => match self.reconnect().await {
                    Some(connection) => connection,
                    None => return,
                },
            };
            match self.attend(&mut current).await {
                Ok(Left::Closed) => return self.link.end(),
                Ok(Left::Superseded) => return,
                Err(error) => {
                    let session = self.link.ticket.id;
                    tracing::debug!(session, %error, "the connection to ZooKeeper broke");
                    self.link.route.move_on();
                    let mut state = self.link.state();
                    if !self.is_in_charge(&state) {
                        return;
                    }
                    let alarms = self.link.cut(&mut state);
                    drop(state);
                    alarms.iter().for_each(|alarm| alarm.endanger());
                }
            }
        }
    }

    fn is_in_charge(&self, state: &State) -> bool {
        state.driver == self.number
    }

    /// Connects again, for as long as there is a point in it.
    async fn reconnect(&self) -> Option<Connection> {
        let (link, begin) = (&self.link, Moment::now());
        let (mut pause, mut tries) = (PAUSE, 0);
        loop {
            let seen = {
                let state = link.state();
                if !self.is_in_charge(&state) {
                    return None;
                }
                let given_up = Moment::now().since(begin) > link.ticket.timeout;
                if state.leaving && (given_up || state.estate.is_empty()) {
                    drop(state);
                    link.end();
                    return None;
                }
                state.seen
            };
            match link.route.connect(&link.ticket, seen).await {
                Ok((connection, _)) => {
                    let mut state = link.state();
                    if !self.is_in_charge(&state) {
                        return None;
                    }
                    state.wire.connect(&connection.writer);
                    link.set_phase(Phase::Connected);
                    return Some(connection);
                }
                Err(Fault::Unanswered(why)) => {
                    tracing::debug!(%why, "ZooKeeper cannot be reached");
                    tries += 1;
                }
                Err(fault) => {
                    tracing::debug!(?fault, "the session with ZooKeeper is over");
                    link.end();
                    return None;
                }
            }
            if link.route.door.tries > 0 && tries >= link.route.door.tries {
                link.end();
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(link.route.door.backoff);
        }
    }

    /// Serves one connection until it breaks.
    async fn attend(&self, connection: &mut Connection) -> io::Result<Left> {
        let mut inbox = Inbox::default();
        loop {
            let (left, next) = self.tend()?;
            self.flush(&mut connection.writer).await?;
            if let Some(left) = left {
                return Ok(left);
            }
            tokio::select! {
                biased;
                read = connection.reader.read_buf(&mut inbox.bytes) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    while let Some(packet) = inbox.next()? {
                        self.hear(packet)?;
                    }
                    inbox.tidy();
                }
                () = self.link.stir.notified() => {}
                () = next.reached() => {}
            }
        }
    }

    /// Does what is due; returns when something will be.
    fn tend(&self) -> io::Result<(Option<Left>, Moment)> {
        let (now, link) = (Moment::now(), &self.link);
        let mut state = link.state();
        if !self.is_in_charge(&state) {
            return Ok((Some(Left::Superseded), now));
        }
        let silent = state.wire.oldest().map(|sent| sent + link.route.door.timeout);
        if silent.is_some_and(|end| end <= now) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for duty in state.estate.duties(now) {
            match duty {
                Duty::Watch { id, path } => {
                    state.wire.put(Request::exists(&path, true), Then::Watched(id));
                }
                Duty::Write { path, data, seal: None } => {
                    state.wire.put(Request::write(&path, data.as_bytes()), Then::Ignore);
                }
                Duty::Write { path, data, seal: Some((parent, version)) } => {
                    let data = data.as_bytes();
                    let request = Request::write_sealed(&path, data, &parent, version);
                    state.wire.put(request, Then::Ignore);
                }
                Duty::Delete { id, path } => {
                    state.wire.put(Request::delete(&path), Then::Deleted(id));
                }
                Duty::Identify { id, parent } => {
                    let path = format!("{parent}/{NODE}");
                    state.wire.put(Request::sync(&parent), Then::Ignore);
                    state.wire.put(Request::exists(&parent, false), Then::Sealed(id));
                    state.wire.put(Request::data(&path, false), Then::Identified(id));
                }
                Duty::Find { id, parent } => {
                    // What we asked for may be further than the server that we are at now.
                    state.wire.put(Request::sync(&parent), Then::Ignore);
                    state.wire.put(Request::children(&parent), Then::Found(id));
                }
            }
        }
        let left = if state.leaving && state.estate.is_empty() {
            state.wire.put(Request::close(), Then::Ignore);
            Some(Left::Closed)
        } else {
            None
        };
        let beat = link.ticket.timeout / BEATS;
        if state.wire.last_sent().is_none_or(|sent| sent + beat <= now) {
            state.wire.ping();
        }
        state.wire.push()?;
        let alive = state.wire.last_sent().unwrap_or(now) + beat;
        // A moment that was planned stays, though what it was for may be gone: moving it forth and
        // back with every lock that is taken for a moment would cost a wake-up each.
        let planned = state.planned.filter(|planned| *planned > now);
        let next = [silent, planned, state.estate.next_due()];
        let next = next.into_iter().flatten().fold(alive, Moment::min);
        state.planned = Some(next);
        Ok((left, next))
    }

    /// Sends what could not be sent at once.
    async fn flush(&self, writer: &mut Writer) -> io::Result<()> {
        match writer {
            Writer::Direct(writer) => {
                while self.has_more()? {
                    writer.writable().await?;
                }
            }
            Writer::Driven(writer) => {
                let outgoing = self.link.state().wire.take_outgoing();
                if !outgoing.is_empty() {
                    writer.write_all(&outgoing).await?;
                    writer.flush().await?;
                }
            }
        }
        Ok(())
    }

    fn has_more(&self) -> io::Result<bool> {
        let mut state = self.link.state();
        Ok(self.is_in_charge(&state) && !state.wire.push()?)
    }

    fn hear(&self, packet: &[u8]) -> io::Result<()> {
        let mut reader = Reader(packet);
        let header = (reader.int(), reader.long(), reader.int());
        let (Some(number), Some(zxid), Some(code)) = header else {
            return Err(io::Error::other("an answer without a header"));
        };
        let mut state = self.link.state();
        if !self.is_in_charge(&state) {
            return Ok(());
        }
        if number == EVENT {
            if let Some(event) = Event::read(reader) {
                let told = if event.deleted { Told::Deleted } else { Told::Changed };
                if event.deleted {
                    state.known.gone(&event.path);
                }
                state.watchers.tell(&event.path, &told);
                watch_again(&mut state, &event);
                self.link.push(&mut state);
            }
            return Ok(());
        }
        state.seen = state.seen.max(zxid);
        if number < 0 {
            state.wire.ponged();
            return Ok(());
        }
        let (then, sent) = state.wire.answered(number)?;
        if code == 0 {
            state.assured = state.assured.max(sent);
        }
        let answer = match code {
            0 => Ok(Answer(reader.0.to_vec())),
            code => Err(Fault::of(code)),
        };
        let over = matches!(answer, Err(Fault::Over));
        // Whoever asked goes on elsewhere, and is not to find the state locked.
        if let Then::Tell(tell) = then {
            drop(state);
            // It may have left.
            let _ = tell.send(answer);
            if over {
                self.link.end();
            }
            return Ok(());
        }
        let loss = settle(&mut state, then, answer);
        self.link.push(&mut state);
        drop(state);
        if let Some((alarm, reason)) = loss {
            alarm.ring(reason);
        }
        if over {
            self.link.end();
        }
        Ok(())
    }
}

/// Should the runtime end under it, another goes on.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.link.state();
        if self.is_in_charge(&state) {
            state.driver = 0;
            let alarms = self.link.cut(&mut state);
            drop(state);
            alarms.iter().for_each(|alarm| alarm.endanger());
        }
    }
}

/// Why a driver leaves its connection.
enum Left {
    /// Nobody has need of the session any more.
    Closed,
    /// Another driver is in charge.
    Superseded,
}

/// A node that is watched because a claim is held by it: gone or changed.
fn watch_again(state: &mut State, event: &Event) {
    let Some((id, parent)) = state.estate.holder(&event.path) else { return };
    if event.deleted {
        let request = Request::data(parent, false);
        state.wire.put(request, Then::Explained(id));
    } else {
        state.wire.put(Request::exists(&event.path, true), Then::Watched(id));
    }
}

/// Draws the conclusions from an answer; a loss is told when no lock is held.
fn settle(
    state: &mut State,
    then: Then,
    answer: Result<Answer, Fault>,
) -> Option<(Arc<Alarm>, LossReason)> {
    let gone = matches!(&answer, Err(fault) if fault.is(refusal::NO_NODE));
    match then {
        Then::Watched(id) if gone => {
            let parent = state.estate.parent(id)?.to_owned();
            state.wire.put(Request::data(&parent, false), Then::Explained(id));
        }
        Then::Explained(id) => {
            let path = state.estate.path(id)?.to_owned();
            let reason = broken::reason_in(answer.as_ref(), &path);
            return state.estate.strike_off(id).map(|alarm| (alarm, reason));
        }
        Then::Deleted(id) if gone || answer.is_ok() => drop(state.strike_off(id)),
        Then::Found(id) => {
            let children = match &answer {
                Ok(answer) => answer.children().ok()?,
                Err(_) if gone => Vec::new(),
                Err(_) => return None,
            };
            match state.estate.sought(id, &children) {
                Some(path) => {
                    state.estate.found(id, &path);
                    state.wire.put(Request::delete(&path), Then::Deleted(id));
                }
                None => state.estate.strike_off_doomed(id),
            }
        }
        Then::Sealed(id) => {
            let stat = answer.and_then(|answer| answer.stat()).ok();
            state.estate.seal(id, stat.map(|stat| stat.version));
        }
        Then::Identified(id) => {
            let ours = match answer.and_then(|answer| answer.data()) {
                Ok((data, _)) => record::is_of(&data, &id.to_string()),
                Err(_) if gone => false,
                Err(_) => return None,
            };
            if !ours {
                state.estate.strike_off_doomed(id);
            } else if let Some((parent, seal)) = state.estate.sealed(id) {
                let path = format!("{parent}/{NODE}");
                let delete = Request::delete_sealed(&path, parent, seal);
                // Whether that was done is seen when it is looked at again.
                state.wire.put(delete, Then::Ignore);
                state.estate.look_again(id);
            }
        }
        Then::Watched(_) | Then::Deleted(_) | Then::Tell(_) | Then::Ignore => {}
    }
    None
}

/// Bytes as they come, packets as they are complete.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    read: usize,
}

impl Inbox {
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let rest = &self.bytes[self.read..];
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(io::Error::other("an answer that is too long"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.read + 4;
        self.read = start + length;
        Ok(Some(&self.bytes[start..self.read]))
    }

    fn tidy(&mut self) {
        self.bytes.drain(..self.read);
        self.read = 0;
    }
}
