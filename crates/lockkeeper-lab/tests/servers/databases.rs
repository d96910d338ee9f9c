//! Databases behind a pooler, with a standby, read only, on a full disk.

use crate::{Case, eventually};
use anyhow::{Context, Result};
use lockkeeper_lab::server::wire::{mariadb, postgres};
use lockkeeper_lab::server::{Kind, Lab, Plan, Program, Server, Unsupported};

pub(crate) const CASES: &[Case] = &[
    ("pgbouncer_hands_one_session_to_two_clients", &[Kind::Postgres], pooled),
    ("a_standby_follows_and_can_be_promoted", &[Kind::Postgres], promoted),
    ("what_the_standby_never_got_is_lost", &[Kind::Postgres], left_behind),
    ("postgres_takes_settings", &[Kind::Postgres], settings),
    ("a_read_only_mariadb_refuses_writes", &[Kind::MariaDb], read_only),
    ("a_member_of_galera_says_so", &[Kind::MariaDb], galera),
    ("a_full_disk_stops_postgres_from_growing", &[Kind::Postgres], full_postgres),
    ("a_full_disk_stops_mariadb_from_growing", &[Kind::MariaDb], full_mariadb),
];

fn pooled(lab: &Lab) -> Result<()> {
    let server = lab.postgres().start()?;
    let bouncer = lab.pgbouncer(server.port()).config("default_pool_size = 1").start()?;
    let pid = |port| postgres::query(port, "SELECT pg_backend_pid()");
    // Two clients, one after the other, on one session.
    assert_eq!(pid(bouncer.port())?, pid(bouncer.port())?);
    assert_ne!(pid(server.port())?, pid(server.port())?);
    // The lock of a client that has gone stays with the session, and lets the next client in too.
    let take = "SELECT pg_try_advisory_lock(42)";
    assert_eq!(postgres::query(bouncer.port(), take)?, ["t"]);
    assert_eq!(postgres::query(bouncer.port(), take)?, ["t"]);
    assert_eq!(postgres::query(server.port(), take)?, ["f"]);
    bouncer.kill()?;
    bouncer.restart()
}

fn promoted(lab: &Lab) -> Result<()> {
    let pair = lab.postgres().start_replicated()?;
    let (primary, standby) = (pair.primary.port(), pair.standby.port());
    postgres::query(primary, "CREATE TABLE kept (a int)")?;
    postgres::query(primary, "INSERT INTO kept VALUES (7)")?;
    pair.await_standby()?;
    assert_eq!(postgres::query(standby, "SELECT a FROM kept")?, ["7"]);
    let refused = postgres::query(standby, "INSERT INTO kept VALUES (8)");
    assert!(refused.expect_err("a standby took a write").to_string().contains("read-only"));
    pair.primary.kill()?;
    pair.promote()?;
    postgres::query(standby, "INSERT INTO kept VALUES (8)")?;
    assert_eq!(postgres::query(standby, "SELECT count(*) FROM kept")?, ["2"]);
    pair.standby.restart()?;
    assert_eq!(postgres::query(standby, "SELECT count(*) FROM kept")?, ["2"]);
    Ok(())
}

fn left_behind(lab: &Lab) -> Result<()> {
    let pair = lab.postgres().start_replicated()?;
    let (primary, standby) = (pair.primary.port(), pair.standby.port());
    postgres::query(primary, "CREATE TABLE kept (a int)")?;
    pair.await_standby()?;
    pair.standby.kill()?;
    postgres::query(primary, "INSERT INTO kept VALUES (7)")?;
    pair.primary.kill()?;
    pair.standby.restart()?;
    pair.promote()?;
    assert_eq!(postgres::query(standby, "SELECT count(*) FROM kept")?, ["0"]);
    Ok(())
}

fn settings(lab: &Lab) -> Result<()> {
    let server = lab.postgres().config("max_connections=33").start()?;
    assert_eq!(postgres::query(server.port(), "SHOW max_connections")?, ["33"]);
    Ok(())
}

fn read_only(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().read_only().start()?;
    assert_eq!(mariadb::query(server.port(), "SELECT @@global.read_only")?, ["1"]);
    let refused = mariadb::query(server.port(), "CREATE TABLE lockkeeper.kept (a int)");
    let refused = refused.expect_err("it took a write").to_string();
    assert!(refused.contains("read-only"), "{refused}");
    Ok(())
}

fn galera(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().galera().start()?;
    let status = |name: &str| {
        let sql = "SELECT variable_value FROM information_schema.global_status \
                   WHERE variable_name = ";
        mariadb::query(server.port(), &format!("{sql}'{name}'"))
    };
    eventually("it takes writes", || Ok(status("wsrep_ready")? == ["ON"]));
    assert_eq!(status("wsrep_cluster_size")?, ["1"]);
    mariadb::query(server.port(), "CREATE TABLE lockkeeper.kept (a int primary key)")?;
    Ok(())
}

/// Starts it on a small disk; `None` where that takes rights we do not have.
fn on_small_disk<P: Program + Clone + 'static>(plan: Plan<P>) -> Result<Option<Server>> {
    match plan.disk(192 << 20).start() {
        Ok(server) => Ok(Some(server)),
        Err(error) => {
            assert!(error.is::<Unsupported>(), "{error:?}");
            assert!(!nix::unistd::geteuid().is_root(), "root may mount: {error:?}");
            println!("not shown here: {error}");
            Ok(None)
        }
    }
}

/// Fills the disk, writes until the server refuses, frees the disk, and writes again.
fn fill(server: &Server, write: impl Fn() -> Result<Vec<String>>) -> Result<String> {
    write()?;
    server.fill_disk()?;
    let refused = (0..2000).find_map(|_| write().err()).context("it never refused a write")?;
    server.free_disk()?;
    eventually("it takes writes again", || {
        if server.answers().is_err() {
            // PostgreSQL gives up when it cannot continue its log.
            server.restart()?;
        }
        Ok(write().is_ok())
    });
    Ok(refused.to_string())
}

fn full_postgres(lab: &Lab) -> Result<()> {
    let Some(server) = on_small_disk(lab.postgres())? else { return Ok(()) };
    postgres::query(server.port(), "CREATE TABLE big (a text)")?;
    let write = "INSERT INTO big SELECT repeat(md5(g::text), 200) FROM generate_series(1, 100) g";
    let refused = fill(&server, || postgres::query(server.port(), write))?;
    println!("postgres said {refused}");
    Ok(())
}

fn full_mariadb(lab: &Lab) -> Result<()> {
    let Some(server) = on_small_disk(lab.mariadb())? else { return Ok(()) };
    let query = |sql: &str| mariadb::query(server.port(), sql);
    query("CREATE TABLE lockkeeper.big (a longtext) ENGINE=InnoDB")?;
    let refused =
        fill(&server, || query("INSERT INTO lockkeeper.big VALUES (repeat('x', 300000))"))?;
    println!("mariadb said {refused}");
    Ok(())
}
