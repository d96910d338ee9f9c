//! Servers start, answer, and say why when they do not.

use crate::Case;
use anyhow::{Context, Result};
use lockkeeper_lab::server::wire::{self, resp::Resp};
use lockkeeper_lab::server::{Certificates, Kind, Lab, PortTaken, Server};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const CASES: &[Case] = &[
    ("one_of_each_starts_and_answers", &Kind::ALL, one_of_each),
    ("nothing_listens_but_on_loopback", &Kind::ALL, only_loopback),
    ("a_taken_port_is_told_apart", &Kind::ALL, taken_port),
    ("a_failed_start_shows_the_log", &[Kind::Redis], failed_start),
    ("redis_asks_for_its_password_and_knows_its_users", &[Kind::Redis], password),
    ("redis_encrypts", &[Kind::Redis], encrypted),
    ("zookeeper_counts_as_started_when_it_encrypts", &[Kind::ZooKeeper], greets_encrypted),
    ("shared_servers_are_started_once", &[Kind::Redis], shared_once),
];

fn all(lab: &Lab) -> Result<Vec<(Kind, Server)>> {
    std::thread::scope(|scope| {
        let start = |kind| scope.spawn(move || Ok((kind, lab.start(kind)?)));
        let threads = Kind::ALL.map(start);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn one_of_each(_: &Lab) -> Result<()> {
    let begin = Instant::now();
    // A lab of its own: nothing is prepared yet.
    let lab = Lab::open()?;
    let servers = all(&lab)?;
    println!("one of each after {:.1?}", begin.elapsed());
    for (kind, server) in &servers {
        server.answers().with_context(|| kind.to_string())?;
    }
    let begin = Instant::now();
    let more = all(&lab)?;
    println!("and another of each after {:.1?}", begin.elapsed());
    for (kind, server) in &more {
        server.answers().with_context(|| kind.to_string())?;
        assert!(servers.iter().all(|(_, other)| other.port() != server.port()));
    }
    Ok(())
}

fn only_loopback(lab: &Lab) -> Result<()> {
    let servers = all(lab)?;
    for (kind, server) in &servers {
        let pid = server.pid().context("a process")?;
        let mut sockets: Vec<String> = Vec::new();
        // Some are several processes, begun by the one that is known here.
        for pid in std::iter::once(pid).chain(begun_by(pid)) {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?
                .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            sockets.extend(open.filter_map(|link| {
                Some(link.to_str()?.strip_prefix("socket:[")?.replace(']', ""))
            }));
        }
        let mut listening = 0;
        for table in ["tcp", "tcp6", "udp", "udp6"] {
            let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
            for line in text.lines().skip(1) {
                let columns: Vec<&str> = line.split_whitespace().collect();
                // 0A is LISTEN, and 07 a UDP socket without a peer.
                let open = columns[3] == "0A" || table.starts_with("udp");
                if open && sockets.iter().any(|inode| inode == columns[9]) {
                    listening += 1;
                    let loopback = columns[1].starts_with("0100007F:")
                        || columns[1].starts_with("00000000000000000000000001000000:")
                        || columns[1].starts_with("0000000000000000FFFF00000100007F:");
                    assert!(loopback, "{kind} listens on {}", columns[1]);
                }
            }
        }
        assert!(listening > 0, "{kind} does not listen at all");
    }
    Ok(())
}

/// The processes that this one began.
fn begun_by(pid: u32) -> Vec<u32> {
    let parent = |child: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        // Behind the name, which may have anything in it: the state, and the parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|child| parent(*child) == Some(pid)).collect()
}

fn taken_port(lab: &Lab) -> Result<()> {
    let listeners: Vec<TcpListener> =
        (0..5).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let ports: Vec<u16> =
        listeners.iter().map(|it| Ok(it.local_addr()?.port())).collect::<Result<_>>()?;
    let one = &ports[..1];
    for (kind, start) in [
        (Kind::Redis, lab.redis().start_on(one)),
        (Kind::Redlock, lab.redlock().start_on(&ports)),
        (Kind::ZooKeeper, lab.zookeeper().start_on(one)),
        (Kind::Postgres, lab.postgres().start_on(one)),
        (Kind::MariaDb, lab.mariadb().start_on(one)),
        (Kind::Memcached, lab.memcached().start_on(one)),
        (Kind::Etcd, lab.etcd().start_on(&ports[..2])),
    ] {
        let error = start.err().with_context(|| format!("{kind} started on a taken port"))?;
        assert!(error.is::<PortTaken>(), "{kind}: {error:?}");
    }
    Ok(())
}

fn failed_start(lab: &Lab) -> Result<()> {
    let error = lab.redis().config("no-such-setting 1").start().expect_err("not a setting");
    let text = format!("{error:?}");
    assert!(text.contains("no-such-setting"), "{text}");
    Ok(())
}

fn password(lab: &Lab) -> Result<()> {
    let redis = lab.redis().password("secret").config("user app on >word ~lock:* +@all").start()?;
    assert_eq!(redis.url(), format!("redis://:secret@{}", redis.address()));
    let mut stranger = Resp::connect(redis.port())?;
    let error = stranger.ask(&["SET", "a", "1"]).expect_err("not let in");
    assert!(error.to_string().starts_with("NOAUTH"), "{error}");
    stranger.ask(&["AUTH", "app", "word"])?;
    stranger.ask(&["SET", "lock:a", "1"])?;
    let error = stranger.ask(&["SET", "a", "1"]).expect_err("not his key");
    assert!(error.to_string().starts_with("NOPERM"), "{error}");
    redis.redis()?.ask(&["SET", "a", "1"])?;
    Ok(())
}

fn encrypted(lab: &Lab) -> Result<()> {
    let redis = lab.redis().tls().start()?;
    assert_eq!(redis.url(), format!("rediss://{}", redis.address()));
    assert!(wire::line::ask(redis.port(), "PING\r\n").map_or(true, |said| said.is_empty()));
    let verified = Command::new("openssl")
        .args(["s_client", "-connect", &redis.address(), "-verify_return_error"])
        .args(["-verify_ip", "127.0.0.1", "-CAfile"])
        .arg(Certificates::in_folder(redis.folder()).authority)
        .stdin(Stdio::null())
        .output()?;
    assert!(verified.status.success(), "{verified:?}");
    redis.restart()
}

/// Not when it answers on the port that only the lab uses: the first handshake of a JVM takes
/// longer than a client waits for it, while the machine is busy.
fn greets_encrypted(lab: &Lab) -> Result<()> {
    let zookeeper = lab.zookeeper().client_certificates().start()?;
    zookeeper.answers()?;
    let shown = Certificates::in_folder(zookeeper.folder()).client;
    let aside = shown.with_extension("aside");
    std::fs::rename(&shown, &aside)?;
    assert!(zookeeper.answers().is_err(), "it was not asked where it wants a certificate");
    std::fs::rename(&aside, &shown)?;
    zookeeper.answers()
}

fn shared_once(_: &Lab) -> Result<()> {
    let lab = Lab::open()?;
    let from_elsewhere = std::env::var(Kind::Redis.variable()).ok();
    let url = lab.shared(Kind::Redis)?;
    assert_eq!(url, lab.shared(Kind::Redis)?);
    let port: u16 = url.rsplit(':').next().context("a port")?.parse()?;
    Resp::connect(port)?.ask(&["PING"])?;
    match from_elsewhere {
        Some(theirs) => assert_eq!(url, theirs),
        None => {
            assert_eq!(std::fs::read_dir(lab.folder())?.count(), 2, "the marker and one server")
        }
    }
    Ok(())
}
