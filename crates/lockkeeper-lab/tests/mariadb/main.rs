//! What `mariadb://` promises beyond the contract: when servers, networks, disks and clocks fail,
//! when rights are missing, and when many wait.

mod crowd;
mod intruder;
mod isolation;
mod reaching;
mod rights;
#[path = "../sql/mod.rs"]
mod sql;

use anyhow::Result;
use lockkeeper_lab::server::wire::mariadb;
use lockkeeper_lab::server::{Kind, Lab, Server};
use lockkeeper_lab::trials::{arguments, trials};
use std::sync::Arc;

pub(crate) const KIND: Kind = Kind::MariaDb;
/// Who a keeper with a standby is: not the lab's own user, whom no `read_only` stops.
pub(crate) const USER: &str = "app";
/// The name of the row with the floor of all tokens.
pub(crate) const FLOOR: &str = "x'01666c6f6f72'";
/// Tables as they were before there was a version.
pub(crate) const VERSION_0: &str = include_str!("version_0.sql");

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let cases = [
        crowd::CASES,
        isolation::CASES,
        reaching::CASES,
        rights::CASES,
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
    mariadb::query(server.port(), sql)
}

const OURS: &str =
    "FROM information_schema.processlist WHERE db = 'lockkeeper' AND id <> connection_id()";

/// Whether a session waits for a row that another has locked.
///
/// Not read from `innodb_lock_waits`: that is made anew only for a reader after whom nobody read it for
/// a tenth of a second, and one who polls more often sees what was there at the first look for ever.
pub(crate) fn is_waited_for(server: &Server) -> Result<bool> {
    let waits = "SELECT 1 FROM information_schema.global_status \
                 WHERE variable_name = 'Innodb_row_lock_current_waits' AND variable_value > 0";
    Ok(!query(server, waits)?.is_empty())
}

/// How many sessions of ours there are.
pub(crate) fn sessions(server: &Server) -> Result<i64> {
    sql::number(server, &format!("SELECT count(*) {OURS}"))
}

/// Ends every session of ours; how many there were.
pub(crate) fn kill_sessions(server: &Server) -> Result<usize> {
    let ids = query(server, &format!("SELECT id {OURS}"))?;
    for id in &ids {
        // One may have ended by itself.
        let _ = query(server, &format!("KILL {id}"));
    }
    Ok(ids.len())
}

/// How many rows the driver says a statement changed, where it is asked to count what was found, as
/// `lockkeeper::fence` says.
pub(crate) async fn changed(server: &Server, statement: &str) -> Result<u64> {
    use mysql_async::prelude::Queryable;
    let opts = mysql_async::OptsBuilder::default().ip_or_hostname("127.0.0.1");
    let opts = opts.tcp_port(server.port()).user(Some("lockkeeper")).db_name(Some("lockkeeper"));
    let mut conn = mysql_async::Conn::new(opts.client_found_rows(true)).await?;
    conn.query_drop(statement).await?;
    let changed = conn.affected_rows();
    conn.disconnect().await?;
    Ok(changed)
}

/// How many deadlocks the server counted.
pub(crate) fn deadlocks(server: &Server) -> Result<i64> {
    let counted = "SELECT variable_value FROM information_schema.global_status \
                   WHERE variable_name = 'INNODB_DEADLOCKS'";
    sql::number(server, counted)
}

/// A user with no rights but to connect.
pub(crate) fn new_user(server: &Server, name: &str) -> Result<()> {
    query(server, &format!("CREATE USER {name}@'127.0.0.1'"))?;
    // Without a right on anything in it, a database cannot even be chosen.
    query(server, "CREATE TABLE lockkeeper.door (a integer)")?;
    query(server, &format!("GRANT SELECT ON lockkeeper.door TO {name}@'127.0.0.1'"))?;
    Ok(())
}

/// A user that is asked for a password, with all rights on the tables.
pub(crate) fn ask_for_password(server: &Server, user: &str, password: &str) -> Result<()> {
    query(server, &format!("CREATE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}'"))?;
    query(server, &format!("GRANT ALL ON lockkeeper.* TO {user}@'127.0.0.1'"))?;
    Ok(())
}

/// Runs what `lockkeeper schema` prints.
pub(crate) fn grant_all(server: &Server, script: &str) -> Result<()> {
    let script = script.replace("TO app", "TO app@'127.0.0.1'");
    let lines: Vec<&str> = script.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in lines.join("\n").split(";\n").map(|it| it.trim_end_matches(';')) {
        query(server, statement)?;
    }
    Ok(())
}

/// A server that others can follow, with a user for keepers, who follows too.
pub(crate) fn replicating(lab: &Lab) -> Result<Server> {
    let server = lab.mariadb().config("--log-bin=changes").config("--server-id=1").start()?;
    query(&server, &format!("CREATE USER {USER}@'127.0.0.1'"))?;
    query(&server, &format!("GRANT ALL ON lockkeeper.* TO {USER}@'127.0.0.1'"))?;
    Ok(server)
}

/// A server that follows the one on this port, perhaps with a clock of its own.
pub(crate) fn replica(lab: &Lab, port: u16, clock: bool) -> Result<Server> {
    let plan = if clock { lab.mariadb().clock() } else { lab.mariadb() };
    let plan = plan.config("--log-bin=changes").config("--log-slave-updates=ON");
    let server = plan.config("--server-id=2").start()?;
    query(
        &server,
        &format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, \
             MASTER_USER = 'lockkeeper', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos"
        ),
    )?;
    query(&server, "START SLAVE")?;
    read_only(&server)?;
    Ok(server)
}

/// Has a replica take writes.
pub(crate) fn promote(replica: &Server) -> Result<()> {
    query(replica, "STOP SLAVE")?;
    query(replica, "SET GLOBAL read_only = 0")?;
    Ok(())
}

/// Makes the server refuse writes.
pub(crate) fn read_only(server: &Server) -> Result<()> {
    query(server, "SET GLOBAL read_only = 1")?;
    Ok(())
}
