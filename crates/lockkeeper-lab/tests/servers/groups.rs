//! Servers that know each other.

use crate::{Case, eventually};
use anyhow::{Context, Result};
use lockkeeper_lab::server::wire::{http, line};
use lockkeeper_lab::server::{Kind, Lab, Server};

pub(crate) const CASES: &[Case] = &[
    ("independent_redis_servers_share_nothing", &[Kind::Redis], independent),
    ("a_write_on_the_primary_arrives_on_its_replicas", &[Kind::Redis], replicated),
    ("sentinel_promotes_a_replica", &[Kind::Redis], sentinel),
    ("a_cluster_fails_over", &[Kind::Redis], cluster),
    ("zookeeper_of_three_does_without_one", &[Kind::ZooKeeper], zookeeper),
    ("etcd_of_three_does_without_one", &[Kind::Etcd], etcd),
];

fn get(server: &Server, key: &str) -> Result<Option<String>> {
    Ok(server.redis()?.ask(&["GET", key])?.text().map(str::to_owned))
}

fn independent(lab: &Lab) -> Result<()> {
    let servers = lab.redis().start_many(5)?;
    servers[0].redis()?.ask(&["SET", "a", "1"])?;
    let found: Result<Vec<_>> = servers.iter().map(|server| get(server, "a")).collect();
    assert_eq!(found?, [Some("1".to_owned()), None, None, None, None]);
    Ok(())
}

fn replicated(lab: &Lab) -> Result<()> {
    let group = lab.redis().password("secret").start_replicated(2)?;
    group.primary.redis()?.ask(&["SET", "a", "1"])?;
    for replica in &group.replicas {
        eventually("the write arrives", || Ok(get(replica, "a")?.as_deref() == Some("1")));
        assert!(replica.redis()?.ask(&["SET", "a", "2"]).is_err(), "a replica took a write");
    }
    Ok(())
}

fn sentinel(lab: &Lab) -> Result<()> {
    let group = lab.redis().password("secret").start_sentinel(2)?;
    assert_eq!(group.primary_port()?, group.primary.port());
    group.primary.redis()?.ask(&["SET", "a", "1"])?;
    for replica in &group.replicas {
        eventually("the write arrives", || Ok(get(replica, "a")?.as_deref() == Some("1")));
    }
    group.primary.kill()?;
    eventually("a replica is promoted", || {
        let port = group.primary_port()?;
        let promoted = group.replicas.iter().find(|replica| replica.port() == port);
        let promoted = promoted.context("it is still the old one")?;
        promoted.redis()?.ask(&["SET", "b", "2"])?;
        Ok(get(promoted, "a")?.as_deref() == Some("1"))
    });
    // The old one comes back, and follows.
    group.primary.restart()?;
    eventually("the old primary follows", || {
        Ok(group.primary.redis()?.info("replication")?.contains("role:slave"))
    });
    Ok(())
}

fn cluster(lab: &Lab) -> Result<()> {
    // The slot of this key is 15495, which is the third master's.
    const SLOT: u16 = 15_495;
    let cluster = lab.redis().start_cluster()?;
    let (old, replica) = (&cluster.nodes[2], &cluster.nodes[5]);
    let others: Vec<&Server> =
        cluster.nodes.iter().filter(|node| node.port() != old.port()).collect();
    assert_eq!(cluster.master_of(SLOT, others[0])?.map(Server::port), Some(old.port()));
    assert!(others[0].redis()?.ask(&["SET", "a", "1"]).is_err(), "another node's slot");
    let mut writer = old.redis()?;
    writer.ask(&["SET", "a", "1"])?;
    assert_eq!(writer.ask(&["WAIT", "1", "1000"])?.number(), Some(1), "no replica has it");
    old.kill()?;
    eventually("its replica takes over", || {
        Ok(cluster.master_of(SLOT, others[0])?.map(Server::port) == Some(replica.port()))
    });
    cluster.await_all_slots(others)?;
    assert_eq!(get(replica, "a")?.as_deref(), Some("1"));
    Ok(())
}

fn zookeeper(lab: &Lab) -> Result<()> {
    let servers = lab.zookeeper().start_ensemble(3)?;
    assert_eq!(servers[0].url().matches("127.0.0.1").count(), 3);
    let leads = |server: &Server| {
        line::ask(server.port(), "srvr").is_ok_and(|said| said.contains("Mode: leader"))
    };
    assert_eq!(servers.iter().filter(|server| leads(server)).count(), 1);
    let (leader, followers): (Vec<_>, Vec<_>) = servers.iter().partition(|server| leads(server));
    leader[0].kill()?;
    eventually("the others elect one", || Ok(followers.iter().any(|server| leads(server))));
    for follower in &followers {
        follower.await_answer()?;
    }
    leader[0].restart()
}

fn etcd(lab: &Lab) -> Result<()> {
    let servers = lab.etcd().start_group(3)?;
    servers[0].kill()?;
    // "YQ==" is "a", "MQ==" is "1".
    eventually("a write is taken", || {
        http::post(servers[1].port(), "/v3/kv/put", r#"{"key":"YQ==","value":"MQ=="}"#)?;
        Ok(true)
    });
    let read = |server: &Server| http::post(server.port(), "/v3/kv/range", r#"{"key":"YQ=="}"#);
    assert!(read(&servers[2])?.contains("MQ=="));
    servers[0].restart()?;
    assert!(read(&servers[0])?.contains("MQ=="));
    servers[1].kill()?;
    servers[2].kill()?;
    eventually("one alone does not answer", || Ok(servers[0].answers().is_err()));
    Ok(())
}
