//! The parts of store URLs that the lab changes.

use crate::server::Kind;
use crate::stores::STORES;
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};

/// A URL split at its hosts: `redis://me:secret@` `a:1,b:2` `/0?recipe=queue`.
struct Cut<'a> {
    before: &'a str,
    hosts: &'a str,
    after: &'a str,
}

fn cut(url: &str) -> Option<Cut<'_>> {
    let start = url.find("://")? + 3;
    let rest = &url[start..];
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // A password may contain an unescaped @; a host never does.
    let hosts = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let (from, to) = (start + hosts, start + end);
    (from < to).then(|| Cut { before: &url[..from], hosts: &url[from..to], after: &url[to..] })
}

fn scheme(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

/// Whether the store is reached over a network that a proxy can be put into.
pub(crate) fn has_hosts(url: &str) -> bool {
    cut(url).is_some()
}

/// Whether the store's replies are in the Redis protocol, which the proxy can parse.
pub(crate) fn speaks_resp(url: &str) -> bool {
    STORES.iter().any(|store| store.speaks_resp && store.kind.word() == scheme(url))
}

/// The hosts of a URL, in order.
pub(crate) fn hosts(url: &str) -> Result<Vec<SocketAddr>> {
    let cut = cut(url).context("the store's URL names no host")?;
    cut.hosts.split(',').map(|host| address(host, scheme(url))).collect()
}

fn address(host: &str, scheme: &str) -> Result<SocketAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // An IPv6 address in brackets or without a port contains colons itself.
    let has_port = match host.rsplit_once(':') {
        Some((name, _)) if host.starts_with('[') => name.ends_with(']'),
        Some((name, _)) => !name.contains(':'),
        None => false,
    };
    let (name, port) = if has_port {
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        let port =
            port.parse().with_context(|| format!("{host:?} has no port that is a number"))?;
        (name.trim_start_matches('[').trim_end_matches(']'), port)
    } else {
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == scheme);
        (bare, kind.with_context(|| format!("say the port of {host:?}"))?.usual_port())
    };
    let mut found = (name, port)
        .to_socket_addrs()
        .with_context(|| format!("the store's host {name:?} is not known here"))?;
    found.next().with_context(|| format!("the store's host {name:?} has no address"))
}

/// The URL with other hosts; the rest is unchanged.
pub(crate) fn with_hosts(url: &str, hosts: &[SocketAddr]) -> Result<String> {
    let Cut { before, after, .. } = cut(url).context("the store's URL names no host")?;
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    Ok(format!("{before}{}{after}", hosts.join(",")))
}

/// The URL with a recipe named in its query.
pub(crate) fn with_recipe(url: &str, recipe: &str) -> Result<String> {
    let query = url.split_once('?').map(|(_, query)| query);
    let mut pairs = query.unwrap_or_default().split('&');
    if pairs.any(|pair| pair.split('=').next() == Some("recipe")) {
        bail!("the store's URL names a recipe already: leave out --recipe, or that");
    }
    with_option(url, "recipe", recipe)
}

/// The URL with one more option in its query.
pub(crate) fn with_option(url: &str, name: &str, value: &str) -> Result<String> {
    let joint = match url.split_once('?').map(|(_, query)| query) {
        None => "?",
        Some("") => "",
        Some(query) if query.ends_with('&') => "",
        Some(_) => "&",
    };
    let mut url = format!("{url}{joint}{name}=");
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => url.push(byte.into()),
            _ => write!(url, "%{byte:02X}")?,
        }
    }
    Ok(url)
}

/// The URL without its password, for display.
pub(crate) fn shown(url: &str) -> String {
    let Some(Cut { before, hosts, after }) = cut(url) else { return url.to_owned() };
    let start = before.find("://").map_or(0, |at| at + 3);
    match before[start..].split_once(':') {
        Some((user, _)) => format!("{}{user}:***@{hosts}{after}", &before[..start]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_and_replaced() {
        let proxies: Vec<SocketAddr> =
            ["127.0.0.1:7001", "127.0.0.1:7002"].map(|it| it.parse().expect("an address")).into();
        for (url, count, replaced) in [
            ("redis://127.0.0.1:1", 1, "redis://127.0.0.1:7001"),
            ("redis://127.0.0.1/0", 1, "redis://127.0.0.1:7001/0"),
            ("redis://me:p@ss@127.0.0.1:1/0?a=b", 1, "redis://me:p@ss@127.0.0.1:7001/0?a=b"),
            ("zookeeper://127.0.0.1:1?a=u@h", 1, "zookeeper://127.0.0.1:7001?a=u@h"),
            (
                "etcd://u:x@127.0.0.1:1,127.0.0.2:2/p",
                2,
                "etcd://u:x@127.0.0.1:7001,127.0.0.1:7002/p",
            ),
            ("redis://[::1]:5,[::2]/0", 2, "redis://127.0.0.1:7001,127.0.0.1:7002/0"),
        ] {
            assert_eq!(hosts(url).expect(url).len(), count, "{url}");
            assert_eq!(with_hosts(url, &proxies[..count]).expect(url), replaced);
        }
        assert_eq!(hosts("redis://[::1]:5").expect("a host"), ["[::1]:5".parse().expect("one")]);
        assert_eq!(hosts("redis://::1").expect("a host"), ["[::1]:6379".parse().expect("one")]);
    }

    #[test]
    fn urls_without_hosts_have_none() {
        for url in ["memory:", "sqlite:a/b@c.db", "redis://", "redis://u:p@/0", "nothing"] {
            assert!(!has_hosts(url), "{url}");
        }
    }

    #[test]
    fn a_host_that_is_none_is_refused_by_name() {
        let error = hosts("redis://127.0.0.1:many").expect_err("no port");
        assert!(format!("{error:#}").contains("127.0.0.1:many"), "{error:#}");
        assert!(hosts("strange://127.0.0.1").is_err(), "which port?");
    }

    #[test]
    fn a_recipe_goes_into_the_query() {
        for (url, with) in [
            ("redis://h/0", "redis://h/0?recipe=queue"),
            ("redis://h?a=b", "redis://h?a=b&recipe=queue"),
            ("sqlite:x.db?", "sqlite:x.db?recipe=queue"),
            ("sqlite:x.db?a=b&", "sqlite:x.db?a=b&recipe=queue"),
        ] {
            assert_eq!(with_recipe(url, "queue").expect(url), with);
        }
        assert_eq!(with_recipe("m:", "a&b%").expect("one"), "m:?recipe=a%26b%25");
        assert!(with_recipe("redis://h?x=1&recipe=simple", "queue").is_err());
        assert!(with_recipe("redis://h?no-recipe=1", "queue").is_ok());
    }

    #[test]
    fn no_password_is_shown() {
        assert_eq!(shown("redis://me:p@ss@h:1/0"), "redis://me:***@h:1/0");
        assert_eq!(shown("redis://:x@h"), "redis://:***@h");
        for plain in ["redis://h:1/0", "redis://me@h:1", "sqlite:a.db", "memory:"] {
            assert_eq!(shown(plain), plain);
        }
    }
}
