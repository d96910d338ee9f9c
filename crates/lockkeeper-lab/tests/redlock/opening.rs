//! What a keeper finds when it connects.

use super::stage::{CALM, Five, held, url_of};
use anyhow::{Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Lab, Server};

cases!(
    it_opens_while_a_minority_is_down,
    two_addresses_of_one_server_are_refused,
    a_server_that_evicts_is_refused,
    each_server_may_have_a_password_of_its_own,
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
