//! A proxy between a client and a server that injects network faults.
//!
//! ```no_run
//! use lockkeeper_lab::proxy::{Direction, Flow, Proxy};
//! # fn main() -> std::io::Result<()> {
//! let proxy = Proxy::start("127.0.0.1:6379".parse().unwrap(), 7)?;
//! // … the client is told to connect to proxy.address() …
//! proxy.set(Direction::ToClient, Flow::Swallow);
//! // … and its requests are carried out, but never answered …
//! assert!(proxy.counters().swallowed_to_client > 0);
//! proxy.heal();
//! # Ok(()) }
//! ```
//!
//! The proxy runs on its own thread and can be used from any test. Latency is drawn from the seed,
//! by connection and direction: the same connections in the same order get the same delays.
//!
//! The proxy cannot swallow the handshake of a new connection: a client that connects during a
//! black hole succeeds, and gets no answer.

mod counters;
mod link;
mod plan;
mod pump;
mod reader;
mod resp;
#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use plan::{Afterwards, Direction, Flow, Framing, Side};
pub use reader::{Reader, Step};

use counters::{Tally, one_more};
use plan::{Ambush, Plan};
use reader::Readers;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

/// State shared by the parts of a proxy.
#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    upstream: SocketAddr,
    seed: u64,
    framing: Framing,
    readers: Readers,
    plan: watch::Sender<Plan>,
    ambush: Mutex<Option<Ambush>>,
    tally: Tally,
}

impl Shared {
    fn ambush(&self) -> MutexGuard<'_, Option<Ambush>> {
        self.ambush.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a reply; returns what to do afterwards if it is the reply to swallow.
    fn reply(&self) -> Option<Afterwards> {
        one_more(&self.tally.replies);
        let mut ambush = self.ambush();
        let waiting = ambush.as_mut()?;
        if waiting.passing > 0 {
            waiting.passing -= 1;
            return None;
        }
        one_more(&self.tally.replies_swallowed);
        ambush.take().map(|ambush| ambush.afterwards)
    }
}

/// Controls a proxy. Cheap to clone; has no effect once the proxy is dropped.
#[derive(Debug, Clone)]
pub struct Control(Arc<Shared>);

impl Control {
    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// What the proxy has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.tally.read()
    }

    /// Sets what happens to the bytes of one direction, on all connections.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.0.plan.send_modify(|plan| plan.flows[direction as usize] = flow);
    }

    /// Sets both directions atomically.
    pub fn set_both(&self, flow: Flow) {
        self.0.plan.send_modify(|plan| plan.flows = [flow; 2]);
    }

    /// Swallows both directions: the client is cut off and neither side is told.
    pub fn partition(&self) {
        self.set_both(Flow::Swallow);
    }

    /// Resets every open connection, on both sides.
    pub fn reset(&self) {
        self.0.plan.send_modify(|plan| plan.resets += 1);
    }

    /// Closes the `side` of every open connection without telling the other side, which can go on
    /// sending until [`heal`](Self::heal) resets it.
    pub fn forget(&self, side: Side) {
        self.0.plan.send_modify(|plan| plan.forgets[side as usize] += 1);
    }

    /// Forwards what readers have held back.
    pub fn let_go(&self) {
        self.0.plan.send_modify(|plan| plan.releases += 1);
    }

    /// Whether new connections are refused, as if nothing listened on the port.
    pub fn refuse(&self, refuse: bool) {
        self.0.plan.send_modify(|plan| plan.refuse = refuse);
    }

    /// Swallows the `nth` reply from now on, counted from 1 over all connections in order of
    /// arrival. Swallows only that one reply, and replaces an earlier call.
    ///
    /// # Panics
    /// When `nth` is zero.
    pub fn swallow_reply(&self, nth: u64, afterwards: Afterwards) {
        assert!(nth > 0, "replies are counted from 1");
        *self.0.ambush() = Some(Ambush { passing: nth - 1, afterwards });
    }

    /// Ends every fault. Held bytes are delivered; connections that lost bytes or an end are reset.
    pub fn heal(&self) {
        *self.0.ambush() = None;
        self.0.plan.send_modify(|plan| {
            plan.flows = [Flow::Pass; 2];
            plan.refuse = false;
            plan.heals += 1;
        });
    }
}

/// A proxy that runs until it is dropped, and is controlled by its [`Control`].
#[derive(Debug)]
pub struct Proxy {
    control: Control,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one in front of `upstream`, on a free loopback port. Replies are bursts.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(upstream: SocketAddr, seed: u64) -> io::Result<Self> {
        Self::start_framed(upstream, seed, Framing::Burst)
    }

    /// As [`start`](Self::start), for a server whose replies are counted as `framing` says.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start_framed(upstream: SocketAddr, seed: u64, framing: Framing) -> io::Result<Self> {
        Self::start_with(upstream, seed, framing, Readers::none())
    }

    /// As [`start`](Self::start), with a reader on each connection.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start_read(
        upstream: SocketAddr,
        readers: impl Fn() -> Reader + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_with(upstream, 0, Framing::Burst, Readers(Arc::new(readers)))
    }

    fn start_with(
        upstream: SocketAddr,
        seed: u64,
        framing: Framing,
        readers: Readers,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (place, listener) = runtime.block_on(async {
            // Never listens: it reserves the port while connections are refused.
            let place = socket((Ipv4Addr::LOCALHOST, 0).into())?;
            let listener = socket(place.local_addr()?)?.listen(1024)?;
            io::Result::Ok((place, listener))
        })?;
        let shared = Arc::new(Shared {
            address: place.local_addr()?,
            upstream,
            seed,
            framing,
            readers,
            plan: watch::Sender::new(Plan::default()),
            ambush: Mutex::default(),
            tally: Tally::default(),
        });
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(serve(serving, listener));
            drop(place);
        })?;
        Ok(Self { control: Control(shared), thread: Some(thread) })
    }

    /// A handle that can be shared.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }
}

impl Deref for Proxy {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.control.0.plan.send_modify(|plan| plan.stop = true);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic; if it did, its connections would be gone anyway.
            let _ = thread.join();
        }
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Accepts until told to stop; the connections end with the runtime.
async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let mut plan = shared.plan.subscribe();
    let mut listener = Some(listener);
    let mut number = 0;
    loop {
        let (refuse, stop) = {
            let plan = plan.borrow_and_update();
            (plan.refuse, plan.stop)
        };
        if stop {
            return;
        }
        if refuse {
            listener = None;
        } else if listener.is_none() {
            listener = socket(shared.address).and_then(|socket| socket.listen(1024)).ok();
        }
        let accept = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Only a proxy that is being dropped has no sender, and it has sent `stop` before.
            _ = plan.changed() => {}
            accepted = accept => if let Ok((client, _)) = accepted {
                number += 1;
                one_more(&shared.tally.connections);
                tokio::spawn(link::run(shared.clone(), client, number));
            }
        }
    }
}
