//! What `postgres://` promises beyond the contract: when servers, networks, disks and clocks fail,
//! when rights are missing, and when many wait.

mod intruder;
mod poolers;
mod reaching;
#[path = "../sql/mod.rs"]
mod sql;

use anyhow::Result;
use lockkeeper_lab::server::wire::postgres;
use lockkeeper_lab::server::{Kind, Lab, Server};
use lockkeeper_lab::trials::{arguments, trials};
use std::sync::Arc;

pub(crate) const KIND: Kind = Kind::Postgres;
/// Who a keeper with a standby is.
pub(crate) const USER: &str = "lockkeeper";
/// The name of the row with the floor of all tokens.
pub(crate) const FLOOR: &str = "E'\\x01floor'";
/// Tables as they were before there was a version.
pub(crate) const VERSION_0: &str = include_str!("version_0.sql");

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let cases = [
        poolers::CASES,
        reaching::CASES,
        sql::doors::CASES,
        sql::faults::CASES,
        sql::fences::CASES,
        sql::handing::CASES,
        sql::intruders::CASES,
        sql::keepalive::CASES,
        sql::replies::CASES,
        sql::standby::CASES,
        sql::tables::CASES,
        sql::versions::CASES,
    ];
    let conclusion = libtest_mimic::run(&arguments(4), trials(&lab, KIND, &cases));
    drop(lab);
    conclusion.exit();
}

/// The first column of what the server answers to an operator.
pub(crate) fn query(server: &Server, sql: &str) -> Result<Vec<String>> {
    postgres::query(server.port(), sql)
}

/// How many rows the driver says a statement changed.
pub(crate) async fn changed(server: &Server, statement: &str) -> Result<u64> {
    let at = format!("host=127.0.0.1 port={} user=lockkeeper dbname=lockkeeper", server.port());
    let (client, connection) = tokio_postgres::connect(&at, tokio_postgres::NoTls).await?;
    // Ends with the client.
    tokio::spawn(connection);
    Ok(client.execute(statement, &[]).await?)
}

/// Whether a session of ours waits for a row that another has locked.
pub(crate) fn is_waited_for(server: &Server) -> Result<bool> {
    Ok(!query(server, &format!("SELECT pid {OURS} AND wait_event_type = 'Lock'"))?.is_empty())
}

const OURS: &str = "FROM pg_stat_activity WHERE application_name = 'lockkeeper'";

/// How many sessions of ours there are.
pub(crate) fn sessions(server: &Server) -> Result<i64> {
    sql::number(server, &format!("SELECT count(*) {OURS}"))
}

/// Ends every session of ours; how many there were.
pub(crate) fn kill_sessions(server: &Server) -> Result<usize> {
    Ok(query(server, &format!("SELECT pg_terminate_backend(pid) {OURS}"))?.len())
}

/// How many deadlocks the server counted.
pub(crate) fn deadlocks(server: &Server) -> Result<i64> {
    sql::number(server, "SELECT sum(deadlocks) FROM pg_stat_database")
}

/// A user with no rights but to connect.
pub(crate) fn new_user(server: &Server, name: &str) -> Result<()> {
    query(server, &format!("CREATE ROLE {name} LOGIN"))?;
    query(server, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")?;
    Ok(())
}

/// A user that is asked for a password, with all rights on the tables.
pub(crate) fn ask_for_password(server: &Server, user: &str, password: &str) -> Result<()> {
    query(server, &format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'"))?;
    let file = query(server, "SHOW hba_file")?.concat();
    let rules = std::fs::read_to_string(&file)?;
    std::fs::write(&file, format!("host all {user} all scram-sha-256\n{rules}"))?;
    query(server, "SELECT pg_reload_conf()")?;
    Ok(())
}

/// Runs what `lockkeeper schema` prints.
pub(crate) fn grant_all(server: &Server, script: &str) -> Result<()> {
    query(server, script)?;
    Ok(())
}

/// A server that others can follow.
pub(crate) fn replicating(lab: &Lab) -> Result<Server> {
    lab.postgres().start()
}

/// A server that follows the one on this port, perhaps with a clock of its own.
pub(crate) fn replica(lab: &Lab, port: u16, clock: bool) -> Result<Server> {
    let plan = if clock { lab.postgres().clock() } else { lab.postgres() };
    plan.standby_of(port).start()
}

/// Has a replica take writes.
pub(crate) fn promote(replica: &Server) -> Result<()> {
    lockkeeper_lab::server::promote(replica)
}

/// Makes the server refuse writes.
pub(crate) fn read_only(server: &Server) -> Result<()> {
    query(server, "ALTER DATABASE lockkeeper SET default_transaction_read_only = on")?;
    Ok(())
}
