//! Killing, stopping, pausing, restarting.

use crate::{Case, eventually};
use anyhow::{Context, Result};
use lockkeeper_lab::server::wire::{http, mariadb, postgres};
use lockkeeper_lab::server::{Kind, Lab, Server};
use std::net::TcpListener;
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    ("a_restart_keeps_what_was_durable", &[Kind::Redis], redis_restart),
    ("a_restart_keeps_the_tables_of_postgres", &[Kind::Postgres], postgres_restart),
    ("a_restart_keeps_the_tables_of_mariadb", &[Kind::MariaDb], mariadb_restart),
    ("a_restart_keeps_what_etcd_has", &[Kind::Etcd], etcd_restart),
    ("a_paused_server_does_not_answer", &Kind::ALL, pause),
    ("a_paused_postgres_lets_no_session_go_on", &[Kind::Postgres], pause_sessions),
    ("every_kind_comes_back_on_its_port", &Kind::ALL, comes_back),
    ("a_restart_waits_for_its_port", &[Kind::Redis], waits_for_port),
    ("data_in_a_given_folder_stays", &[Kind::Redis], given_folder),
];

fn redis_restart(lab: &Lab) -> Result<()> {
    let server = lab.redis().durable().start()?;
    let get =
        || Ok::<_, anyhow::Error>(server.redis()?.ask(&["GET", "a"])?.text().map(String::from));
    server.redis()?.ask(&["SET", "a", "1"])?;
    let port = server.port();
    server.kill()?;
    assert!(server.answers().is_err());
    server.restart()?;
    assert_eq!((server.port(), get()?), (port, Some("1".to_owned())));
    server.restart_empty()?;
    assert_eq!((server.port(), get()?), (port, None));
    Ok(())
}

fn postgres_restart(lab: &Lab) -> Result<()> {
    let server = lab.postgres().start()?;
    let query = |sql: &str| postgres::query(server.port(), sql);
    query("CREATE TABLE kept (a int)")?;
    query("INSERT INTO kept VALUES (7)")?;
    server.kill()?;
    server.restart()?;
    assert_eq!(query("SELECT a FROM kept")?, ["7"]);
    server.restart_empty()?;
    assert!(query("SELECT a FROM kept").is_err());
    Ok(())
}

fn mariadb_restart(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().start()?;
    let query = |sql: &str| mariadb::query(server.port(), sql);
    query("CREATE TABLE kept (a int)")?;
    query("INSERT INTO kept VALUES (7)")?;
    server.kill()?;
    server.restart()?;
    assert_eq!(query("SELECT a FROM kept")?, ["7"]);
    server.restart_empty()?;
    assert!(query("SELECT a FROM kept").is_err());
    Ok(())
}

fn etcd_restart(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    let read = || http::post(server.port(), "/v3/kv/range", r#"{"key":"YQ=="}"#);
    http::post(server.port(), "/v3/kv/put", r#"{"key":"YQ==","value":"MQ=="}"#)?;
    server.kill()?;
    server.restart()?;
    assert!(read()?.contains("MQ=="));
    server.restart_empty()?;
    assert!(!read()?.contains("MQ=="));
    Ok(())
}

fn pause(lab: &Lab) -> Result<()> {
    let servers: Vec<Server> =
        Kind::ALL.iter().map(|kind| lab.start(*kind)).collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        for server in &servers {
            scope.spawn(move || {
                server.pause().expect("it runs");
                assert!(server.answers().is_err(), "{} answered", server.name());
                server.resume().expect("it runs");
                eventually("it answers again", || Ok(server.answers().is_ok()));
            });
        }
    });
    Ok(())
}

fn pause_sessions(lab: &Lab) -> Result<()> {
    let server = lab.postgres().start()?;
    let port = server.port();
    postgres::query(port, "CREATE TABLE beats (a int)")?;
    // Goes on for two seconds by itself, in a process that is not the one that was started.
    let beating = std::thread::spawn(move || {
        postgres::query(
            port,
            "DO $$ BEGIN PERFORM pg_sleep(1); INSERT INTO beats VALUES (1); END $$",
        )
    });
    eventually("the session is at work", || {
        let active = postgres::query(
            port,
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
        )?;
        Ok(active == ["1"])
    });
    server.pause()?;
    let error = beating.join().expect("no panic").expect_err("an answer while paused");
    assert!(error.to_string().contains("temporarily unavailable"), "{error}");
    server.resume()?;
    Ok(())
}

fn comes_back(lab: &Lab) -> Result<()> {
    std::thread::scope(|scope| {
        let threads = Kind::ALL.map(|kind| {
            scope.spawn(move || -> Result<()> {
                let server = lab.start(kind)?;
                let (port, pid) = (server.port(), server.pid());
                server.stop().with_context(|| kind.to_string())?;
                assert!(server.answers().is_err() && server.pid().is_none());
                server.restart()?;
                assert!(server.port() == port && server.pid() != pid, "{kind}");
                server.pause()?;
                server.kill()?;
                server.restart_empty()?;
                // A running one is restarted too, and a paused one can be stopped.
                server.pause()?;
                server.restart()?;
                server.answers()
            })
        });
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

fn waits_for_port(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    server.kill()?;
    let squatter = TcpListener::bind(server.address())?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            drop(squatter);
        });
        server.restart()
    })?;
    server.answers()
}

fn given_folder(lab: &Lab) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("deep/data");
    let server = lab.redis().durable().data(&data).start()?;
    server.redis()?.ask(&["SET", "a", "1"])?;
    drop(server);
    let server = lab.redis().durable().data(&data).start()?;
    assert_eq!(server.redis()?.ask(&["GET", "a"])?.text(), Some("1"));
    Ok(())
}
