//! What a `redlock://` URL, or a caller's struct, says. Nothing here connects.

use crate::address::Address;
use crate::backend::quorum::QuorumOptions;
use crate::backend::redis::{RedisOptions, Topology};
use crate::backend::support::options::{TLS, config};
use crate::backend::support::percent;
use crate::backend::{Backend, Background, OpenStore, TlsOptions};
use crate::duration::parse_duration;
use crate::error::Result;
use crate::patience::OUTAGE;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// The options of a URL, besides those for TLS.
const OPTIONS: &[&str] = &["timeout", "min_uptime", "token", "prefix", "allow_eviction"];

/// How long a connection may take to be made, and a request to be given up, at least: what is slower
/// than a vote may be is still of interest.
const PATIENT: Duration = Duration::from_secs(1);

/// Independent Redis servers, a majority of which makes a lock; see
/// [`connect_with`](crate::connect_with).
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::backend::redis::{RedisOptions, RedlockOptions};
///
/// let mut nodes: Vec<_> = (7001..=7005).map(|port| RedisOptions::new("127.0.0.1", port)).collect();
/// nodes[0].password = Some("of the first alone".into());
/// let keeper = lockkeeper::connect_with(RedlockOptions::new(nodes)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RedlockOptions {
    /// The servers, each with its own user, password and certificates. Of their options those count
    /// that say how to connect, and `allow_eviction`.
    pub nodes: Vec<RedisOptions>,
    /// How long a server's answer is waited for before it counts as silent: far below any ttl.
    pub timeout: Duration,
    /// For how long a server must have been up before it votes, unless it keeps what it answered over a
    /// restart: see [`QuorumOptions::min_uptime`].
    pub min_uptime: Option<Duration>,
    /// Whether grants carry fencing tokens.
    pub token: bool,
    /// What keys begin with: nothing, unless said otherwise, as with other libraries.
    pub prefix: String,
    /// How long a claim that waits puts up with servers that do not answer.
    pub outage: Duration,
}

impl RedlockOptions {
    /// These servers, three or five of them.
    pub fn new(nodes: Vec<RedisOptions>) -> Self {
        let QuorumOptions { timeout, min_uptime, token } = QuorumOptions::default();
        let mut options =
            Self { nodes, timeout, min_uptime, token, prefix: String::new(), outage: OUTAGE };
        options.be_patient();
        options
    }

    /// What a URL says.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        address.only_options(&[OPTIONS, TLS])?;
        let option = |name: &str| address.options.get(name).map(String::as_str);
        let prefix = option("prefix").unwrap_or_default();
        if prefix.contains(char::is_control) {
            return Err(config("a prefix has no control characters"));
        }
        let tls = TlsOptions::read(address, address.flag("tls")?)?;
        let (allow_eviction, database) = (address.flag("allow_eviction")?, database(address)?);
        let mut nodes = Vec::new();
        for (user, password, (host, port)) in servers(address)? {
            let mut node = RedisOptions::with_topology(Topology::One(host, port));
            (node.user, node.password, node.tls) = (user, password, tls.clone());
            (node.database, node.allow_eviction) = (database, allow_eviction);
            nodes.push(node);
        }
        let mut options = Self::new(nodes);
        if let Some(timeout) = address.span("timeout")? {
            options.timeout = timeout;
            options.be_patient();
        }
        options.min_uptime = match option("min_uptime") {
            None => None,
            Some(text) => Some(parse_duration(text).map_err(|error| {
                config(format!("the option min_uptime is a time, such as 30s or 0s: {error}"))
            })?),
        };
        options.token = option("token").is_none() || address.flag("token")?;
        options.prefix = prefix.to_owned();
        Ok(options)
    }

    fn be_patient(&mut self) {
        for node in &mut self.nodes {
            node.timeout = PATIENT.max(self.timeout * 4);
        }
    }

    pub(super) fn votes(&self) -> QuorumOptions {
        let mut votes = QuorumOptions::default();
        (votes.timeout, votes.min_uptime, votes.token) =
            (self.timeout, self.min_uptime, self.token);
        votes
    }

    /// The servers for people, without secrets.
    pub(super) fn shown(&self) -> String {
        let hosts = self.nodes.iter().map(|node| {
            let shown = node.shown();
            shown.split_once("://").map_or(shown.clone(), |(_, host)| host.to_owned())
        });
        format!("redlock://{}", hosts.collect::<Vec<_>>().join(","))
    }
}

type Server = (Option<String>, Option<String>, (String, u16));

/// Each server with its user and password: its own, or those before the first server, which are for all
/// that have none.
fn servers(address: &Address) -> Result<Vec<Server>> {
    let authority = address.authority.as_deref().unwrap_or_default();
    if authority.is_empty() {
        return Err(config("which servers vote? Write redlock://host1,host2,host3"));
    }
    let decoded = |text: &str| {
        percent::decode(text).ok_or_else(|| config("write % in a password or user as %25"))
    };
    let mut servers: Vec<Server> = Vec::new();
    let mut for_all = (None, None);
    for (number, part) in authority.split(',').enumerate() {
        let (credentials, host) = match part.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, part),
        };
        let one = Address { authority: Some(host.to_owned()), ..address.clone() };
        let host = one.hosts(6379)?.swap_remove(0);
        let (user, password) = match credentials {
            None => for_all.clone(),
            Some(credentials) => {
                let (user, password) = match credentials.split_once(':') {
                    Some((user, password)) => (user, Some(decoded(password)?)),
                    None => (credentials, None),
                };
                (Some(decoded(user)?).filter(|user| !user.is_empty()), password)
            }
        };
        if number == 0 {
            for_all = (user.clone(), password.clone());
        }
        if servers.iter().any(|(_, _, it)| *it == host) {
            let (host, port) = host;
            return Err(config(format!(
                "{host}:{port} is there twice: a server has one vote, so name each of them once"
            )));
        }
        servers.push((user, password, host));
    }
    Ok(servers)
}

fn database(address: &Address) -> Result<i64> {
    match address.path.trim_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| {
            config(format!("{number:?} is no database: write redlock://h1,h2,h3/0 for number 0"))
        }),
    }
}

#[async_trait]
impl OpenStore for RedlockOptions {
    async fn open(self: Box<Self>, background: &Background) -> Result<Arc<dyn Backend>> {
        super::open(*self, background).await
    }

    fn outage(&self) -> Duration {
        self.outage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn read(url: &str) -> Result<RedlockOptions> {
        RedlockOptions::read(&Address::parse(url).unwrap())
    }

    #[test]
    fn a_url_names_each_server() {
        let options =
            read("redlock://h1:1,h2,[::1]:3/2?timeout=20ms&min_uptime=0s&token=false&prefix=x:")
                .unwrap();
        let hosts: Vec<_> = options.nodes.iter().map(RedisOptions::shown).collect();
        assert_eq!(hosts, ["redis://h1:1", "redis://h2:6379", "redis://::1:3"]);
        assert!(options.nodes.iter().all(|node| node.database == 2 && node.timeout == PATIENT));
        assert_eq!(options.timeout, Duration::from_millis(20));
        assert_eq!(options.min_uptime, Some(Duration::ZERO));
        assert!(!options.token && options.prefix == "x:");
        let plain = read("redlock://a,b,c").unwrap();
        assert!(plain.token && plain.min_uptime.is_none());
        assert_eq!(plain.shown(), "redlock://a:6379,b:6379,c:6379");
    }

    #[test]
    fn passwords_are_for_all_or_for_each() {
        let word = |options: &RedlockOptions, number: usize| options.nodes[number].password.clone();
        let all = read("redlock://me:p%40ss%2C@a,b,c").unwrap();
        assert_eq!((word(&all, 0), word(&all, 2)), (Some("p@ss,".into()), Some("p@ss,".into())));
        assert_eq!(all.nodes[2].user.as_deref(), Some("me"));
        let each = read("redlock://:one@a,:two@b,c").unwrap();
        let words: Vec<_> = (0..3).filter_map(|number| word(&each, number)).collect();
        assert_eq!(words, ["one", "two", "one"]);
        for options in [&all, &each] {
            let shown = format!("{options:?}{}", options.shown());
            for secret in ["p@ss", "one", "two"] {
                assert!(!shown.contains(&format!("\"{secret}")), "{shown}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for url in [
            "redlock://",
            "redlock:a,b,c",
            "redlock://a,b,a",
            "redlock://a,b,c?recipe=queue",
            "redlock://a,b,c?ca=/nowhere",
            "redlock://a,b,c?token=maybe",
            "redlock://a,b,c?timeout=0s",
            "redlock://a,b,c/x",
        ] {
            assert_eq!(read(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
