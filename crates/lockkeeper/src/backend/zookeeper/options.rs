//! What a `zookeeper://` URL says, or a program in its place.
//!
//! Nothing here touches the network. Whatever can be refused without a server is refused here, by
//! [`read`](ZooKeeperOptions::read) for URLs and again by [`open`](super::open) for options that a
//! program has filled in.

use super::client::{Access, ConnectOptions};
use super::layout::Layout;
use crate::address::Address;
use crate::backend::support::encryption::Encryption;
use crate::backend::support::options::{TLS, config};
use crate::backend::{Backend, Background, OpenStore, TlsOptions};
use crate::error::Result;
use crate::patience::OUTAGE;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The options of a URL besides those for TLS.
const KNOWN: &[&str] =
    &["recipe", "layout", "session", "timeout", "connect_timeout", "backoff", "tries", "acl"];

/// Where the locks' nodes are unless the URL has a path.
const ROOT: &str = "/lockkeeper";
/// Where a server listens unless the URL has a port.
const PORT: u16 = 2181;

/// How a lock is made of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZooKeeperRecipe {
    /// A queue of numbered nodes, in which each claim waits for the one before it.
    Fair,
    /// The same nodes, but all waiters are woken when the first goes.
    Barging,
    /// One node, for the claim that creates it first.
    Ephemeral,
}

/// Where the ensemble is, and how its nodes are used; see [`connect_with`](crate::connect_with).
///
/// ```
/// use lockkeeper::backend::zookeeper::{Layout, ZooKeeperOptions};
///
/// let mut options = ZooKeeperOptions::new([("zk1", 2181), ("zk2", 2181)]);
/// options.layout = Layout::Kazoo;
/// options.root = "/services/locks".to_owned();
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ZooKeeperOptions {
    /// The servers of one ensemble, with their ports.
    pub hosts: Vec<(String, u16)>,
    /// The node that the locks are below; `/` or nothing for the top of the tree.
    pub root: String,
    /// How a lock is made of nodes.
    pub recipe: ZooKeeperRecipe,
    /// Which library's node names are used, to share locks with its users.
    pub layout: Layout,
    /// The user and the password to log in with, in ZooKeeper's `digest` scheme.
    pub credentials: Option<(String, String)>,
    /// Who may use the nodes; `None` for [`Access::Creator`] with credentials, and
    /// [`Access::Open`] without.
    pub access: Option<Access>,
    /// How to encrypt; `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// The session timeout to ask for; the server has the last word.
    pub session: Duration,
    /// How long a request may take; `None` for a third of `session`.
    pub timeout: Option<Duration>,
    /// How long the handshake with one server may take.
    pub connect_timeout: Duration,
    /// The longest pause between two attempts to connect.
    pub backoff: Duration,
    /// How often all servers are tried before a session is given up; zero for no limit.
    pub tries: u32,
    /// How long a waiting claim puts up with an ensemble that does not answer.
    pub outage: Duration,
    /// The URL without secrets, if this was one.
    url: Option<String>,
}

impl ZooKeeperOptions {
    /// Fair locks below `/lockkeeper` on the ensemble of these servers.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            hosts: hosts.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            root: ROOT.to_owned(),
            recipe: ZooKeeperRecipe::Fair,
            layout: Layout::Curator,
            credentials: None,
            access: None,
            tls: None,
            session: Duration::from_secs(10),
            timeout: None,
            connect_timeout: Duration::from_secs(2),
            backoff: Duration::from_secs(1),
            tries: 0,
            outage: OUTAGE,
            url: None,
        }
    }

    /// What a URL says.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an option that is unknown or makes no
    /// sense, and for TLS files that cannot be read.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN, TLS])?;
        let option = |name: &str| address.options.get(name).map(String::as_str);
        let mut options = Self::new(address.hosts(PORT)?);
        if let Some(name) = option("recipe") {
            options.recipe = recipe(name)?;
        }
        if let Some(name) = option("layout") {
            options.layout = Layout::named(name).ok_or_else(|| {
                config(format!(
                    "zookeeper:// has no layout {name:?}: it has curator, kazoo and latch"
                ))
            })?;
        }
        let (user, password) = address.credentials()?;
        options.credentials = user.map(|user| (user, password.unwrap_or_default()));
        options.access = match option("acl") {
            None => None,
            Some("open") => Some(Access::Open),
            Some("creator") => Some(Access::Creator),
            Some(_) => return Err(config("the option acl is open or creator")),
        };
        options.tls = TlsOptions::read(address, address.flag("tls")?)?;
        let span = |name, usual| Ok(address.span(name)?.unwrap_or(usual));
        options.session = span("session", options.session)?;
        options.timeout = address.span("timeout")?;
        options.connect_timeout = span("connect_timeout", options.connect_timeout)?;
        options.backoff = span("backoff", options.backoff)?;
        if let Some(number) = option("tries") {
            options.tries =
                number.parse().map_err(|_| config("the option tries is a number, such as 3"))?;
        }
        if !address.path.is_empty() {
            options.root.clone_from(&address.path);
        }
        options.url = Some(address.to_string());
        // So that nonsense is refused without a connection.
        options.normalised_root()?;
        options.effective_access()?;
        Ok(options)
    }

    /// The root without a slash at its end: empty for the top of the tree.
    ///
    /// # Errors
    /// For a root that is no absolute path of a node.
    pub(super) fn normalised_root(&self) -> Result<String> {
        let root = self.root.trim_end_matches('/');
        let bad = |part: &str| part.is_empty() || part == "." || part == "..";
        // ZooKeeper would refuse these too, but with an error that does not say where they are from.
        let is_relative = !root.is_empty() && !root.starts_with('/');
        if is_relative || root.split('/').skip(1).any(bad) || root.chars().any(char::is_control) {
            return Err(config("the path of a ZooKeeper URL is a node, such as /services/locks"));
        }
        Ok(root.to_owned())
    }

    /// Who may use the nodes.
    /// Nodes of a user are that user's alone unless the options say otherwise: a password in the URL
    /// that protected nothing would be a surprise.
    pub(super) fn effective_access(&self) -> Result<Access> {
        match (self.access, &self.credentials) {
            (Some(Access::Open), _) | (None, None) => Ok(Access::Open),
            (Some(Access::Creator) | None, Some(_)) => Ok(Access::Creator),
            (Some(Access::Creator), None) => {
                Err(config("acl=creator needs a user and a password in the URL"))
            }
        }
    }

    /// What the client needs to know of it.
    /// Sets TLS up, so that certificates which cannot be used are reported before a connection is
    /// tried.
    pub(super) fn connect_options(&self) -> Result<ConnectOptions> {
        if self.hosts.is_empty() {
            return Err(config("zookeeper:// needs a host: write zookeeper://host:2181"));
        }
        Ok(ConnectOptions {
            hosts: self.hosts.clone(),
            credentials: self.credentials.as_ref().map(|(user, word)| format!("{user}:{word}")),
            tls: self.tls.as_ref().map(Encryption::new).transpose()?,
            session: self.session,
            timeout: self.timeout.unwrap_or(self.session / 3),
            connect_timeout: self.connect_timeout,
            backoff: self.backoff,
            tries: self.tries,
            shown: self.to_string(),
        })
    }
}

/// The recipe with this name in a URL.
fn recipe(name: &str) -> Result<ZooKeeperRecipe> {
    match name {
        "fair" => Ok(ZooKeeperRecipe::Fair),
        "barging" => Ok(ZooKeeperRecipe::Barging),
        "ephemeral" => Ok(ZooKeeperRecipe::Ephemeral),
        other => Err(crate::recipes::unknown_recipe("zookeeper", other)),
    }
}

#[async_trait]
impl OpenStore for ZooKeeperOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        super::open(*self, background).await
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}

/// The URL, without secrets and options.
impl fmt::Display for ZooKeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(url) = &self.url {
            return f.write_str(url);
        }
        f.write_str("zookeeper://")?;
        if let Some((user, _)) = &self.credentials {
            write!(f, "{user}:***@")?;
        }
        let host = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let hosts: Vec<_> = self.hosts.iter().map(host).collect();
        write!(f, "{}{}", hosts.join(","), self.root)
    }
}

/// Without the password.
impl fmt::Debug for ZooKeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperOptions")
            .field("url", &self.to_string())
            .field("recipe", &self.recipe)
            .field("layout", &self.layout)
            .field("access", &self.access)
            .field("tls", &self.tls)
            .field("session", &self.session)
            .field("outage", &self.outage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn read(url: &str) -> Result<ZooKeeperOptions> {
        ZooKeeperOptions::read(&Address::parse(url).unwrap())
    }

    #[test]
    fn a_url_says_it_all() {
        let url = "zookeeper://me:hunter2@h1,h2:2182/services/locks/?session=6s&timeout=1s\
                   &connect_timeout=500ms&backoff=2s&tries=5&layout=kazoo&recipe=barging";
        let options = read(url).unwrap();
        assert_eq!(options.hosts, [("h1".into(), 2181), ("h2".into(), 2182)]);
        assert_eq!(options.normalised_root().unwrap(), "/services/locks");
        assert_eq!(options.effective_access().unwrap(), Access::Creator);
        let layout = (options.recipe, options.layout);
        assert_eq!(layout, (ZooKeeperRecipe::Barging, Layout::Kazoo));
        assert_eq!((options.session.as_secs(), options.tries), (6, 5));
        assert!(!format!("{options:?}").contains("hunter2"));
        let connect = options.connect_options().unwrap();
        assert_eq!(connect.credentials.as_deref(), Some("me:hunter2"));
        assert_eq!(connect.shown, "zookeeper://me:***@h1,h2:2182/services/locks/");
        assert!(!format!("{connect:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        let options = read("zookeeper://h").unwrap();
        assert_eq!(options.normalised_root().unwrap(), "/lockkeeper");
        assert_eq!(options.effective_access().unwrap(), Access::Open);
        let layout = (options.recipe, options.layout);
        assert_eq!(layout, (ZooKeeperRecipe::Fair, Layout::Curator));
        assert_eq!(options.connect_options().unwrap().timeout, Duration::from_secs(10) / 3);
        assert_eq!(read("zookeeper://h/").unwrap().normalised_root().unwrap(), "");
    }

    #[test]
    fn options_of_a_program_are_shown_as_a_url() {
        let mut options = ZooKeeperOptions::new([("h1", 2181), ("::1", 2182)]);
        options.credentials = Some(("me".into(), "hunter2".into()));
        options.root = "/".into();
        assert_eq!(options.to_string(), "zookeeper://me:***@h1:2181,[::1]:2182/");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert_eq!(options.normalised_root().unwrap(), "");
        options.root = "locks".into();
        assert_eq!(options.normalised_root().unwrap_err().kind(), ErrorKind::Config);
        let nowhere = ZooKeeperOptions::new::<String>([]);
        assert_eq!(nowhere.connect_options().unwrap_err().kind(), ErrorKind::Config);
    }

    #[test]
    fn nonsense_is_refused() {
        for url in [
            "zookeeper://h?recipe=queue",
            "zookeeper://h?layout=etcd",
            "zookeeper://h?acl=creator",
            "zookeeper://h?acl=closed",
            "zookeeper://h?session=soon",
            "zookeeper://h?tries=many",
            "zookeeper://h?ca=/etc/authority.pem",
            "zookeeper://h/a//b",
            "zookeeper://h/a/../b",
            "zookeeper://",
        ] {
            assert_eq!(read(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
