//! What a keeper finds when it connects.

use super::stage::{CALM, Five, held, url_of};
use anyhow::{Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper::backend::TlsOptions;
use lockkeeper::backend::redis::{RedisOptions, RedlockOptions};
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Certificates, Lab, Server};
use std::time::Duration;

cases!(
    it_opens_while_a_minority_is_down,
    two_addresses_of_one_server_are_refused,
    a_server_that_evicts_is_refused,
    each_server_may_have_a_password_of_its_own,
    connections_are_encrypted_and_each_server_is_checked,
    four_servers_need_three_and_one_is_enough_for_one,
);

async fn it_opens_while_a_minority_is_down(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    five.servers[0].kill()?;
    five.servers[4].pause()?;
    let keeper = five.keeper(CALM).await?;
    held(&keeper).await?.release().await?;
    five.servers[1].kill()?;
    let error = five.keeper(CALM).await.unwrap_err();
    let kind = error.downcast_ref::<lockkeeper::Error>().map(lockkeeper::Error::kind);
    ensure!(kind == Some(ErrorKind::Unavailable), "{error:?}");
    five.servers[4].resume()?;
    Ok(())
}

async fn two_addresses_of_one_server_are_refused(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let mut hosts: Vec<_> = five.servers.iter().map(Server::address).collect();
    hosts[4] = format!("localhost:{}", five.servers[0].port());
    let error = lockkeeper::connect(&url_of(hosts.into_iter(), CALM)).await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Config, "{error:?}");
    ensure!(error.to_string().contains("the same server"), "{error}");
    Ok(())
}

async fn a_server_that_evicts_is_refused(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    five.servers[3].limit_memory(0, "allkeys-lru")?;
    let error = lockkeeper::connect(&five.url(CALM)).await.unwrap_err();
    ensure!(error.to_string().contains("noeviction"), "{error}");
    lockkeeper::connect(&five.url(&format!("{CALM}&allow_eviction=true"))).await?;
    Ok(())
}

async fn each_server_may_have_a_password_of_its_own(lab: &Lab) -> Result<()> {
    let words = ["one", "two", "three"];
    let mut servers = Vec::new();
    for word in words {
        servers.push(lab.redis().password(word).start()?);
    }
    let hosts = |words: [&str; 3]| {
        let hosts = servers.iter().zip(words);
        url_of(hosts.map(|(server, word)| format!(":{word}@{}", server.address())), CALM)
    };
    let keeper = lockkeeper::connect(&hosts(words)).await?;
    held(&keeper).await?.release().await?;
    let error = lockkeeper::connect(&hosts(["one", "one", "one"])).await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(!format!("{error:?}").contains(":one@"), "{error:?}");
    Ok(())
}

async fn connections_are_encrypted_and_each_server_is_checked(lab: &Lab) -> Result<()> {
    let servers = lab.redis().tls().start_many(3)?;
    let authority = |server: &Server| Certificates::in_folder(server.folder()).authority;
    // Each has an authority of its own, so that a URL cannot say it: one trusts the first alone.
    let hosts = || servers.iter().map(Server::address);
    let first = authority(&servers[0]);
    let url = url_of(hosts(), &format!("{CALM}&tls=true&ca={}", first.display()));
    let error = lockkeeper::connect(&url).await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains("1 of 3 nodes"), "{error}");
    let mut nodes = Vec::new();
    for server in &servers {
        let mut tls = TlsOptions::new();
        tls.ca = Some(std::fs::read(authority(server))?);
        let mut node = RedisOptions::new("127.0.0.1", server.port());
        node.tls = Some(tls);
        nodes.push(node);
    }
    let mut options = RedlockOptions::new(nodes);
    options.min_uptime = Some(Duration::ZERO);
    let keeper = lockkeeper::connect_with(options).await?;
    held(&keeper).await?.release().await?;
    // One server, and all that is said of it in a URL.
    let one = format!("redlock://{}?{CALM}&tls=true&ca={}", servers[0].address(), first.display());
    held(&lockkeeper::connect(&one).await?).await?.release().await?;
    let plain = lockkeeper::connect(&url_of(hosts(), CALM)).await.unwrap_err();
    ensure!(plain.kind() == ErrorKind::Unavailable, "{plain:?}");
    Ok(())
}

async fn four_servers_need_three_and_one_is_enough_for_one(lab: &Lab) -> Result<()> {
    let five = Five::start(lab)?;
    let hosts = |count: usize| five.servers[..count].iter().map(Server::address);
    let four = lockkeeper::connect(&url_of(hosts(4), CALM)).await?;
    five.servers[0].kill()?;
    held(&four).await?.release().await?;
    five.servers[1].kill()?;
    ensure!(four.lock("a").try_acquire().await.is_err(), "two of four are no majority");
    let one = url_of([five.servers[2].address()].into_iter(), CALM);
    held(&lockkeeper::connect(&one).await?).await?.release().await?;
    Ok(())
}
