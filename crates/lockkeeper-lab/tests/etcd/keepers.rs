//! What a keeper has at etcd beside its claims: a connection, a driver, a prefix.

use crate::{LASTING, LONG, PATIENT, cases, etcdctl, eventually, keeper};
use anyhow::{Result, ensure};
use lockkeeper::Name;
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(
    closing_ends_the_connection,
    a_broken_connection_endangers_what_is_held,
    without_a_prefix_names_are_keys,
    a_keeper_is_opened_by_options,
    pages_show_each_lock_once,
);

/// How many connections of this machine to the server are open.
fn connections(server: &Server) -> Result<usize> {
    let (port, established) = (format!(":{:04X}", server.port()), "01");
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let is_ours = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words[2].ends_with(&port) && words[3] == established
    };
    Ok(table.lines().filter(is_ours).count())
}

async fn closing_ends_the_connection(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    // etcd has connections to itself.
    let before = connections(&server)?;
    let one = keeper(&server, LASTING).await?;
    for round in 0..3 {
        let held = one.lock("held").ttl(LONG).acquire().await?;
        // Long enough for a watch, and so for a driver.
        tokio::time::sleep(Duration::from_millis(100)).await;
        ensure!(one.close(PATIENT).await, "it did not come to rest");
        ensure!(connections(&server)? == before + 1, "round {round}: no connection under a claim");
        held.release().await?;
        ensure!(one.close(PATIENT).await, "it did not come to rest");
        eventually("the connection ends", async || {
            Ok((connections(&server)? == before).then_some(()))
        })
        .await;
    }
    // What was watched before is watched again.
    let held = one.lock("watched").ttl(LONG).acquire().await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    etcdctl(&server, &["del", "--prefix", "lockkeeper/watched/"])?;
    crate::lost(&held).await
}

async fn a_broken_connection_endangers_what_is_held(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let one = keeper(&server, LASTING).await?;
    let held = one.lock("endangered").ttl(LONG).acquire().await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    ensure!(!held.is_in_jeopardy(), "in jeopardy without cause");
    server.kill()?;
    // A renewal, which would find out too, comes only after 40 s.
    eventually("the holder is told", async || Ok(held.is_in_jeopardy().then_some(()))).await;
    ensure!(held.is_held(), "{:?}", held.lost_reason());
    server.restart()?;
    eventually("all is well again", async || Ok((!held.is_in_jeopardy()).then_some(()))).await;
    ensure!(held.is_held(), "{:?}", held.lost_reason());
    // And a second time: it is told again.
    server.kill()?;
    eventually("the holder is told", async || Ok(held.is_in_jeopardy().then_some(()))).await;
    server.restart()
}

async fn without_a_prefix_names_are_keys(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let one = keeper(&server, "prefix=").await?;
    let held = one.lock("gox").ttl(LONG).acquire().await?;
    let said = etcdctl(&server, &["get", "--prefix", "gox/", "--keys-only"])?;
    ensure!(said.lines().filter(|line| !line.is_empty()).count() == 1, "{said}");
    let listed = one.list("").await?;
    ensure!(listed.len() == 1 && listed[0].name.as_str() == "gox", "{listed:?}");
    ensure!(one.list("go").await?.len() == 1 && one.list("x").await?.is_empty());
    held.release().await?;
    for (options, key) in
        [("?prefix=", "gox/"), ("", "lockkeeper/gox/"), ("?prefix=app-", "app-gox/")]
    {
        let backend = lockkeeper::open(&format!("{}{options}", server.url())).await?;
        let keys = backend.keys(&Name::new("gox")?);
        ensure!(keys == [key], "{options}: {keys:?}");
    }
    Ok(())
}

async fn a_keeper_is_opened_by_options(lab: &Lab) -> Result<()> {
    use lockkeeper::backend::etcd::EtcdOptions;
    let server = lab.etcd().start()?;
    let url = format!("http://{}", server.address());
    let endpoint = tonic::transport::Endpoint::from_shared(url)?;
    let by_host = EtcdOptions::new([("127.0.0.1", server.port())]);
    let (one, two) = (
        lockkeeper::connect_with(by_host).await?,
        lockkeeper::connect_with(EtcdOptions::from_endpoints([endpoint])).await?,
    );
    let held = one.lock("same").ttl(LONG).acquire().await?;
    ensure!(two.lock("same").ttl(LONG).try_acquire().await?.is_none(), "two stores");
    held.release().await?;
    two.lock("same").ttl(LONG).acquire().await?.release().await?;
    Ok(())
}

/// However the keys of a name and those of longer names are mixed, and wherever a page ends.
async fn pages_show_each_lock_once(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let (one, two) = (keeper(&server, LASTING).await?, keeper(&server, LASTING).await?);
    let names = ["a", "a/0", "a/5/x", "a/f", "b", "b/9"];
    let _held = one.multi(names).ttl(LONG).acquire().await?;
    let mut waiting = Vec::new();
    for keeper in [&one, &two, &two] {
        waiting.push(crate::waiting(keeper, "a"));
        crate::queue_of(&one, "a", waiting.len()).await;
    }
    // No claim.
    etcdctl(&server, &["put", "lockkeeper/a/6000000000000000", "of somebody"])?;
    for limit in 1..=12 {
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let page = one.list_page("", after.as_deref(), limit).await?;
            for lock in page.locks {
                let waiting = if lock.name.as_str() == "a" { 3 } else { 0 };
                ensure!(lock.holders.len() == 1 && lock.waiters.len() == waiting, "{lock:?}");
                shown.push(lock.name.to_string());
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        shown.sort();
        ensure!(shown == names, "pages of {limit} show {shown:?}");
    }
    for wrong in ["b", "zz", "00", "0"] {
        let error = one.list_page("", Some(wrong), 2).await.expect_err("no page ended there");
        ensure!(error.kind() == lockkeeper::ErrorKind::Config, "{wrong}: {error}");
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}
