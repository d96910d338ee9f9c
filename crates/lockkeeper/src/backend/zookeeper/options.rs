//! What a ZooKeeper URL says.

use super::layout::Layout;
use super::request::Access;
use super::tls;
use crate::address::Address;
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::time::Duration;

const KNOWN: &[&str] = &[
    "recipe",
    "layout",
    "session",
    "timeout",
    "connect_timeout",
    "backoff",
    "tries",
    "acl",
    "tls",
    "ca",
    "cert",
    "key",
];

/// Where locks are unless the URL has a path.
const ROOT: &str = "/lockkeeper";

/// Which recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    Fair,
    Barging,
    Ephemeral,
}

/// A ZooKeeper URL, taken apart.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) recipe: Recipe,
    pub(super) layout: Layout,
    /// The node that the locks are below; empty for the very top.
    pub(super) root: String,
    pub(super) access: Access,
    pub(super) door: Door,
}

/// What it takes to get in.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) hosts: Vec<(String, u16)>,
    /// `user:password`.
    pub(super) credentials: Option<String>,
    pub(super) tls: Option<tls::Settings>,
    /// The session timeout to ask for.
    pub(super) session: Duration,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    /// The longest pause between two tries to connect.
    pub(super) backoff: Duration,
    /// How often every host is tried before a session is given up; zero for no limit.
    pub(super) tries: u32,
    pub(super) shown: String,
}

impl Options {
    pub(super) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[KNOWN])?;
        let option = |name: &str| address.options.get(name).map(String::as_str);
        let recipe = match option("recipe").unwrap_or("fair") {
            "fair" => Recipe::Fair,
            "barging" => Recipe::Barging,
            "ephemeral" => Recipe::Ephemeral,
            other => {
                return Err(config(&format!(
                    "zookeeper:// has no recipe {other:?}: it has fair, barging and ephemeral"
                )));
            }
        };
        let layout = match option("layout").unwrap_or("curator") {
            "curator" => Layout::Curator,
            "kazoo" => Layout::Kazoo,
            "latch" => Layout::Latch,
            other => {
                return Err(config(&format!(
                    "zookeeper:// has no layout {other:?}: it has curator, kazoo and latch"
                )));
            }
        };
        let (user, password) = address.credentials()?;
        let credentials = user.map(|user| format!("{user}:{}", password.unwrap_or_default()));
        let access = match (option("acl"), &credentials) {
            (Some("open"), _) | (None, None) => Access::Open,
            (Some("creator"), Some(_)) | (None, Some(_)) => Access::Creator,
            (Some("creator"), None) => {
                return Err(config("acl=creator needs a user and a password in the URL"));
            }
            (Some(_), _) => return Err(config("the option acl is open or creator")),
        };
        let session = address.span("session")?.unwrap_or(Duration::from_secs(10));
        let tls = address.flag("tls")?;
        address.no_certificates_without(tls)?;
        let tls = tls.then(|| tls::Settings::read(&option)).transpose()?;
        let door = Door {
            hosts: address.hosts(2181)?,
            credentials,
            tls,
            session,
            timeout: address.span("timeout")?.unwrap_or(session / 3),
            connect_timeout: address.span("connect_timeout")?.unwrap_or(Duration::from_secs(2)),
            backoff: address.span("backoff")?.unwrap_or(Duration::from_secs(1)),
            tries: match option("tries") {
                None => 0,
                Some(number) => {
                    number.parse().map_err(|_| config("the option tries is a number, such as 3"))?
                }
            },
            shown: address.to_string(),
        };
        Ok(Self { recipe, layout, root: root(&address.path)?, access, door })
    }
}

fn root(path: &str) -> Result<String> {
    if path.is_empty() {
        return Ok(ROOT.to_owned());
    }
    let root = path.trim_end_matches('/');
    let bad = |part: &str| part.is_empty() || part == "." || part == "..";
    if root.split('/').skip(1).any(bad) || root.chars().any(char::is_control) {
        return Err(config("the path of a ZooKeeper URL is a node, such as /services/locks"));
    }
    Ok(root.to_owned())
}

pub(super) fn config(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// Without the credentials.
impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Options> {
        Options::read(&Address::parse(url).unwrap())
    }

    #[test]
    fn a_url_says_it_all() {
        let url = "zookeeper://me:hunter2@h1,h2:2182/services/locks/?session=6s&timeout=1s\
                   &connect_timeout=500ms&backoff=2s&tries=5&layout=kazoo&recipe=barging";
        let options = read(url).unwrap();
        assert_eq!(options.door.hosts, [("h1".into(), 2181), ("h2".into(), 2182)]);
        assert_eq!(options.root, "/services/locks");
        assert_eq!(options.access, Access::Creator);
        assert_eq!((options.recipe, options.layout), (Recipe::Barging, Layout::Kazoo));
        assert_eq!((options.door.session.as_secs(), options.door.tries), (6, 5));
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        let options = read("zookeeper://h").unwrap();
        assert_eq!(options.root, "/lockkeeper");
        assert_eq!(options.access, Access::Open);
        assert_eq!((options.recipe, options.layout), (Recipe::Fair, Layout::Curator));
        assert_eq!(read("zookeeper://h/").unwrap().root, "");
    }

    #[test]
    fn nonsense_is_refused() {
        for url in [
            "zookeeper://h?recipe=queue",
            "zookeeper://h?layout=etcd",
            "zookeeper://h?acl=creator",
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
