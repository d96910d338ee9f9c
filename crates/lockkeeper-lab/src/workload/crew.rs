//! How the members of a run are started.

use super::fault::{Fault, Needs};
use super::member::Member;
use super::network::Network;
use super::url;
use super::worker::Post;
use crate::proxy::Framing;
use anyhow::{Context, Result, bail};
use lockkeeper::backend::Backend;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Opens a store through these addresses.
pub(crate) type Open = Arc<dyn Fn(&[SocketAddr]) -> Arc<dyn Backend> + Send + Sync>;

/// The kind of members, and how they reach the store.
pub(crate) enum Crew {
    /// Processes that open a URL.
    Processes { store: String },
    /// Threads of this process, each with the store that `open` returns for it.
    Threads { hosts: Vec<SocketAddr>, framing: Framing, open: Open },
}

impl Crew {
    /// Threads that share one store.
    pub(crate) fn sharing(backend: Arc<dyn Backend>) -> Self {
        let open: Open = Arc::new(move |_| backend.clone());
        Crew::Threads { hosts: Vec::new(), framing: Framing::Burst, open }
    }

    /// The store, reached directly without a proxy.
    pub(crate) async fn backend(&self) -> Result<Arc<dyn Backend>> {
        match self {
            Crew::Processes { store } => Ok(lockkeeper::open(store).await?),
            Crew::Threads { hosts, open, .. } => Ok(open(hosts)),
        }
    }

    /// Refuses a fault that is not possible, and says what to do instead.
    pub(crate) fn admits(&self, fault: Fault, has_server: bool) -> Result<()> {
        let word = fault.word();
        let threads = matches!(self, Crew::Threads { .. });
        let reachable = match self {
            Crew::Processes { store } => url::has_hosts(store),
            Crew::Threads { hosts, .. } => !hosts.is_empty(),
        };
        match fault.needs() {
            Needs::Processes if threads => bail!(
                "--fault {word} needs processes, and this store is shared by the threads of one \
                 only: use --fault stall, or another store"
            ),
            Needs::Threads if !threads => bail!(
                "--fault {word} blocks a thread that stands for a process, and this store has \
                 real ones: use --fault pause"
            ),
            Needs::Network if !reachable => bail!(
                "--fault {word} needs a store that is reached over the network, with a host in \
                 its URL"
            ),
            Needs::Server if !has_server => bail!(
                "--fault {word} breaks the server itself, which must be the lab's own: use \
                 --server instead of --store"
            ),
            _ => Ok(()),
        }
    }

    /// Starts a member; `networked` if faults will be injected into its network.
    pub(crate) fn start(&self, post: Post, folder: &Path, networked: bool) -> Result<Member> {
        let history = folder.join(format!("process-{}.jsonl", post.process));
        let seed = post.orders.seed ^ post.number;
        match self {
            Crew::Processes { store } => {
                let network =
                    if networked { Some(Network::before_url(store, seed)?) } else { None };
                let store = match &network {
                    Some(network) => url::with_hosts(store, &network.addresses())?,
                    None => store.clone(),
                };
                let child = Command::new(std::env::current_exe()?)
                    .arg("work")
                    .args(post.words())
                    .arg("--history")
                    .arg(history)
                    // Not an argument, because every user of the machine can read those.
                    .env(super::STORE_VARIABLE, store)
                    .stdin(Stdio::piped())
                    .spawn()
                    .context("cannot start a process of the run")?;
                Ok(Member::process(post.process, network, child))
            }
            Crew::Threads { hosts, framing, open } => {
                let network =
                    if networked { Some(Network::before(hosts, *framing, seed)?) } else { None };
                let backend = match &network {
                    Some(network) => open(&network.addresses()),
                    None => open(hosts),
                };
                Member::thread(post, network, backend, history)
            }
        }
    }
}
