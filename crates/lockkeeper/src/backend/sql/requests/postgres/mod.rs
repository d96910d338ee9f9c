//! The requests to PostgreSQL: parameters in, rows out.

mod numbers;
mod statements;

use super::super::client::{PostgresClient, first_columns};
use super::super::error::{Failure, Why};
use super::super::migration;
use super::super::queue::{ALONE, Change, Queue, Version};
use super::super::record::{HANDED, HELD, Record, Seen, code_of, micros, mode_of};
use super::super::schema::{self, CLAIM, Dialect, Tables, literal};
use super::known::KnownNames;
use super::{Joined, Listed, Listening, Next, Requests, Told, WRITER_ROW};
use crate::backend::Claim;
use crate::backend::sql::checkup::Examined;
use crate::backend::support::options::config;
use crate::error::{Error, Result};
use async_trait::async_trait;
use statements::{NOW, Statements};
use std::fmt;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The oldest server that the statements were written for.
const OLDEST: u32 = 120_000;
/// What is asked of a server before anything else.
const ABOUT: &str = "SELECT current_setting('server_version_num') || ' ' || \
     current_setting('transaction_isolation') || '/' || pg_is_in_recovery()";
/// A number for the lock under which tables are made: any that nobody else uses.
const MAKING: i64 = 0x6c6f_636b_6b65_6570;

/// Statements on two tables of a PostgreSQL.
pub(in super::super) struct PostgresRequests {
    client: PostgresClient,
    tables: Tables,
    statements: Statements,
    numbers: numbers::Statements,
    known: KnownNames,
}

impl PostgresRequests {
    pub(in super::super) fn new(client: PostgresClient, tables: Tables) -> Self {
        let (statements, numbers) = (Statements::new(&tables), numbers::Statements::new(&tables));
        Self { client, tables, statements, numbers, known: KnownNames::default() }
    }

    /// One column of one row by the simple protocol, which every pooler passes on; `None` where
    /// there is no row.
    async fn look_up(&self, text: &str) -> Result<Option<String>, Failure> {
        Ok(self.client.simple(text).await?.into_iter().next().flatten())
    }

    /// Makes the tables, in one transaction and one process at a time: tables that are made at the
    /// same time fail, even when they are only made if they are not there.
    async fn make(&self) -> Result<(), Failure> {
        let statements = self.tables.create(Dialect::Postgres).join("; ");
        let text = format!("BEGIN; SELECT pg_advisory_xact_lock({MAKING}); {statements}; COMMIT");
        let made = self.client.simple(&text).await;
        if made.is_err() {
            // The transaction that failed is still open.
            let _ = self.client.simple("ROLLBACK").await;
        }
        made.map(|_| ())
    }

    /// Whether this server can be used at all, from what [`ABOUT`] says.
    fn check_server(&self, about: &str) -> Result<()> {
        let at = self.shown();
        let (version, rest) = about.split_once(' ').unwrap_or_default();
        if version.parse().unwrap_or(0) < OLDEST {
            return Err(config(format!(
                "{at} is PostgreSQL {version}, and the locks need 12 or later: upgrade it"
            )));
        }
        let (isolation, in_recovery) = rest.split_once('/').unwrap_or_default();
        if in_recovery == "true" {
            return Err(config(format!("{at} is a replica: name the primary in the URL")));
        }
        if isolation != "read committed" {
            return Err(config(format!(
                "transactions at {at} are {isolation}, and a pooler keeps us from changing that: \
                 ALTER ROLE … SET default_transaction_isolation = 'read committed'"
            )));
        }
        Ok(())
    }

    /// The version of the tables, if there are any, after a check of all columns and rights.
    async fn version(&self) -> Result<Option<i64>, Failure> {
        let mark = self.tables.ask_mark(Dialect::Postgres);
        let text = format!("{mark}; {}", self.tables.probes().join("; "));
        let found = self.client.simple(&text).await?.into_iter().next().flatten();
        Ok(found.and_then(|version| version.parse().ok()))
    }
}

#[async_trait]
impl Requests for PostgresRequests {
    fn shown(&self) -> &str {
        self.client.connector.shown()
    }

    fn server(&self) -> &dyn Examined {
        &self.client.connector
    }

    async fn take(&self, claim: &Claim, process: &str) -> Result<Option<i64>, Failure> {
        let (name, id, owner) = (claim.name.as_str(), claim.id.to_string(), claim.owner.id());
        let (mode, ttl) = (code_of(claim.mode), micros(claim.ttl));
        let (identity, note) = (&*claim.identity, &*claim.note);
        let params: [&(dyn ToSql + Sync); 8] =
            [&name, &id, &owner, &process, &mode, &ttl, &identity, &note];
        let known = self.known.contains(name);
        let Statements { take, retake, .. } = &self.statements;
        let rows = self.client.query(if known { retake } else { take }, &params, false).await?;
        match known {
            true if rows.is_empty() => self.known.forget(name),
            true => {}
            false => self.known.add(name),
        }
        Ok(rows.first().map(|row| row.get(0)))
    }

    async fn free(&self, name: &str, id: &str) -> Result<bool, Failure> {
        // Not sent again by the client: a second answer would say that it was not there.
        let rows = self.client.query(&self.statements.free, &[&name, &id], false).await?;
        Ok(!rows.is_empty())
    }

    async fn extend(&self, name: &str, id: &str, ttl: i64) -> Result<bool, Failure> {
        let rows = self.client.query(&self.statements.extend, &[&name, &id, &ttl], true).await?;
        Ok(!rows.is_empty())
    }

    async fn confirm(&self, name: &str, id: &str, ticket: i64) -> Result<bool, Failure> {
        let rows =
            self.client.query(&self.statements.confirm, &[&name, &id, &ticket], true).await?;
        Ok(!rows.is_empty())
    }

    async fn join(&self, claim: &Claim, process: &str) -> Result<Option<Joined>, Failure> {
        let (name, id, owner) = (claim.name.as_str(), claim.id.to_string(), claim.owner.id());
        let (mode, ttl) = (code_of(claim.mode), micros(claim.ttl));
        let (identity, note) = (&*claim.identity, &*claim.note);
        let params: [&(dyn ToSql + Sync); 8] =
            [&name, &id, &owner, &process, &mode, &ttl, &identity, &note];
        let rows = self.client.query(&self.statements.join, &params, false).await?;
        Ok(rows.first().map(|row| Joined {
            ticket: row.get(0),
            place: row.get(1),
            until_expiry: row.get(2),
        }))
    }

    async fn read(&self, process: &str, name: &str, id: &str) -> Result<Option<Queue>, Failure> {
        let rows = self.client.query(&self.statements.read, &[&name, &id], true).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let place: i16 = first.get(4);
        let head = (first.get(0), first.get(1), first.get(2), first.get(3), place);
        let claims = if place == ALONE {
            let token = first.get(9);
            vec![(record(first, 5, token, HELD), true)]
        } else {
            let filled = rows.iter().filter(|row| row.get::<_, Option<i64>>(15).is_some());
            filled.map(|row| (record(row, 17, row.get(15), row.get(16)), row.get(27))).collect()
        };
        Ok(Some(Queue::read(process, head, claims)))
    }

    async fn apply(&self, name: &str, version: Version, change: &Change) -> Result<bool, Failure> {
        let blank = blank(change.now);
        let alone = change.alone.as_ref().unwrap_or(&blank);
        let mode = code_of(alone.mode);
        let deletes = (each(&change.deletes, |it| it.0), each(&change.deletes, |it| it.1));
        let (was, updates): (Vec<i16>, Vec<&Record>) =
            change.updates.iter().map(|(was, record)| (*was, record)).unzip();
        let u = Columns::of(updates.iter().copied());
        let i = Columns::of(change.inserts.iter());
        let channels = each(&change.notices, |(process, _)| channel(process));
        let payloads = each(&change.notices, |(_, told)| told.clone());
        let params: [&(dyn ToSql + Sync); 39] = [
            &name,
            &version.number,
            &change.place,
            &change.last,
            &change.waiting,
            &alone.id,
            &alone.owner,
            &alone.process,
            &mode,
            &alone.token,
            &alone.ttl,
            &alone.since,
            &alone.expires,
            &alone.identity,
            &alone.note,
            &deletes.0,
            &deletes.1,
            &was,
            &u.ticket,
            &u.state,
            &u.process,
            &u.since,
            &u.expires,
            &u.note,
            &i.state,
            &i.ticket,
            &i.id,
            &i.owner,
            &i.process,
            &i.mode,
            &i.token,
            &i.ttl,
            &i.since,
            &i.expires,
            &i.identity,
            &i.note,
            &channels,
            &payloads,
            &version.last,
        ];
        let rows = self.client.query(&self.statements.apply, &params, false).await?;
        Ok(!rows.is_empty())
    }

    async fn hand_on(&self, name: &str, id: &str, process: &str) -> Result<Option<Next>, Failure> {
        let params: [&(dyn ToSql + Sync); 3] = [&name, &id, &process];
        let rows = self.client.query(&self.statements.hand_on, &params, false).await?;
        Ok(rows.first().map(|row| {
            let ours: bool = row.get(2);
            let state = if ours { HELD } else { HANDED };
            let (id, ticket, expires) = (row.get(0), row.get(1), row.get(3));
            Next { seen: Seen { id, ticket, state, expires }, ours }
        }))
    }

    async fn beat(&self, process: &str) -> Result<i64, Failure> {
        let rows = self.client.query(&self.statements.beat, &[&process], true).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    async fn end(&self, process: &str) -> Result<(), Failure> {
        self.client.query(&self.statements.end, &[&process], true).await.map(|_| ())
    }

    async fn granted(&self, process: &str, names: &[String]) -> Result<Vec<Told>, Failure> {
        let rows = self.client.query(&self.statements.granted, &[&process, &names], true).await?;
        Ok(rows.iter().map(|row| Told { id: row.get(0), handed: row.get(1) }).collect())
    }

    async fn claims_of(&self, process: &str, name: &str) -> Result<Vec<String>, Failure> {
        let rows = self.client.query(&self.statements.claims_of, &[&process, &name], true).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn broken(&self, process: &str) -> Result<Vec<(String, String, String)>, Failure> {
        let rows = self.client.query(&self.statements.broken, &[&process], true).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
    }

    async fn list(&self, first: &str, last: &str) -> Result<(i64, Vec<Listed>), Failure> {
        let rows = self.client.query(&self.statements.list, &[&first, &last], true).await?;
        let now = rows.first().map_or(0, |row| row.get(0));
        let filled = rows.iter().filter(|row| row.get::<_, Option<i64>>(2).is_some());
        let listed =
            filled.map(|row| (row.get(1), record(row, 4, row.get(2), row.get(3)), row.get(14)));
        Ok((now, listed.collect()))
    }

    async fn names(
        &self,
        [first, last]: [&str; 2],
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, Failure> {
        let values: [&(dyn ToSql + Sync); 4] = [&first, &last, &after, &limit];
        let rows = self.client.query(&self.statements.names, &values, true).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn raise_floor(&self, unused: i64) -> Result<(), Failure> {
        self.client.query(&self.statements.raise_floor, &[&unused], true).await.map(|_| ())
    }

    async fn sweep(&self, unused: i64) -> Result<Vec<String>, Failure> {
        self.client.query(&self.statements.sweep, &[&unused], true).await?;
        let rows = self.client.query(&self.statements.stale, &[&unused], true).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn incarnation(&self) -> Result<Option<String>, Failure> {
        self.look_up("SELECT extract(epoch FROM pg_postmaster_start_time())").await
    }

    /// The timeline tells servers apart: it is another with every standby that is promoted.
    async fn enter(&self, always: bool) -> Result<Duration, Failure> {
        let (names, row) = (&self.tables.names, literal(Dialect::Postgres, WRITER_ROW));
        let since = if always { "0" } else { NOW };
        let text = format!(
            "INSERT INTO {names} AS l (name, version, place, last, waiting, {CLAIM}) \
             SELECT {row}, 0, 0, 0, 0, left(pg_walfile_name(pg_current_wal_lsn()), 8), '', '', 0, \
               0, 0, {since}, {}, '', '' \
             ON CONFLICT (name) DO UPDATE SET id = excluded.id, since = {NOW} \
               WHERE l.id <> excluded.id; \
             SELECT {NOW} - since FROM {names} WHERE name = {row}",
            // Never cleaned away.
            i64::MAX
        );
        let lasted = self.look_up(&text).await?.and_then(|lasted| lasted.parse().ok());
        Ok(Duration::from_micros(lasted.unwrap_or(0)))
    }

    /// Behind a pooler a subscription lands on a connection of its own choice, and says nothing of
    /// it. So the connection is asked twice who serves it, with a statement on another in between:
    /// a server process that serves two of our connections is a pooler's.
    async fn listen(&self, process: &str) -> Result<Option<Listening>, Failure> {
        let connector = &self.client.connector;
        if connector.has_pooler() {
            return Ok(None);
        }
        let limit = connector.timeout();
        let (connection, messages) = connector.connect(Some(limit)).await?;
        if connector.has_pooler() {
            return Ok(None);
        }
        connection.batch(&format!("LISTEN \"{}\"", channel(process)), limit).await?;
        let pid = "SELECT pg_backend_pid()";
        let ours = first_columns(connection.simple(pid, limit).await?).pop().flatten();
        if self.look_up(pid).await? == ours {
            connector.note_pooler();
            return Ok(None);
        }
        Ok(Some(Listening { messages, _connection: Box::new(connection) }))
    }

    fn can_listen(&self) -> bool {
        !self.client.connector.has_pooler()
    }

    async fn prepare(&self) -> Result<()> {
        let (at, Tables { names, claims }) = (self.shown(), &self.tables);
        let explain = |failure: Failure| -> Error { failure.explain(at) };
        let about = self.look_up(ABOUT).await.map_err(explain)?;
        self.check_server(&about.unwrap_or_default())?;
        let missing = |version: &Result<_, Failure>| {
            version.as_ref().err().and_then(Failure::why) == Some(Why::NoTable)
        };
        let mut version = self.version().await;
        if missing(&version) {
            let there = format!("SELECT COALESCE(to_regclass('{names}'), to_regclass('{claims}'))");
            let there = self.look_up(&there).await.map_err(explain)?;
            if there.is_none() {
                self.make().await.map_err(|failure| no_place(failure, at))?;
            }
            version = self.version().await;
            // The one without the other was not made by us; both may have been, just now.
            if let Some(table) = there.filter(|_| missing(&version)) {
                return Err(schema::not_ours(at, &table));
            }
        }
        if migration::may_be_earlier(&version) {
            migration::migrate_postgres(&self.client.connector, &self.tables).await?;
            version = self.version().await;
        }
        schema::check_version(version.map_err(explain)?, at, names)?;
        // So that the first claim too is taken, renewed and given back by one round trip each.
        let Statements { take, retake, extend, free, .. } = &self.statements;
        self.client.warm(&[take, retake, extend, free]).await.map_err(explain)
    }

    fn disconnect(&self) {
        self.client.disconnect();
    }
}

impl fmt::Debug for PostgresRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresRequests").field(&self.client).finish()
    }
}

/// The error for tables that could not be made.
fn no_place(failure: Failure, at: &str) -> Error {
    match failure.why() {
        Some(Why::NoTable) => config(format!(
            "{at} has no schema to make the tables in: create the one that ?schema= names, or one \
             of the user's search_path"
        )),
        _ => failure.explain(at),
    }
}

/// Where a keeper is told what others hand to it.
fn channel(process: &str) -> String {
    format!("lockkeeper_{process}")
}

/// A claim from ten columns in the order of [`CLAIM`].
fn record(row: &Row, from: usize, ticket: i64, state: i16) -> Record {
    Record {
        ticket,
        state,
        id: row.get(from),
        owner: row.get(from + 1),
        process: row.get(from + 2),
        mode: mode_of(row.get(from + 3)),
        token: row.get(from + 4),
        ttl: row.get(from + 5),
        since: row.get(from + 6),
        expires: row.get(from + 7),
        identity: row.get(from + 8),
        note: row.get(from + 9),
    }
}

/// What the row of a name says of a claim when none is in it; and when it was last changed.
fn blank(now: i64) -> Record {
    Record {
        ticket: 0,
        state: 0,
        id: String::new(),
        owner: String::new(),
        process: String::new(),
        mode: mode_of(0),
        token: 0,
        ttl: 0,
        since: now,
        expires: now,
        identity: String::new(),
        note: String::new(),
    }
}

fn each<T, U>(all: &[T], one: impl Fn(&T) -> U) -> Vec<U> {
    all.iter().map(one).collect()
}

/// Claims by column, as arrays are sent.
#[derive(Default)]
struct Columns<'a> {
    ticket: Vec<i64>,
    state: Vec<i16>,
    id: Vec<&'a str>,
    owner: Vec<&'a str>,
    process: Vec<&'a str>,
    mode: Vec<i64>,
    token: Vec<i64>,
    ttl: Vec<i64>,
    since: Vec<i64>,
    expires: Vec<i64>,
    identity: Vec<&'a str>,
    note: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut columns = Self::default();
        for record in records {
            columns.ticket.push(record.ticket);
            columns.state.push(record.state);
            columns.id.push(&record.id);
            columns.owner.push(&record.owner);
            columns.process.push(&record.process);
            columns.mode.push(code_of(record.mode));
            columns.token.push(record.token);
            columns.ttl.push(record.ttl);
            columns.since.push(record.since);
            columns.expires.push(record.expires);
            columns.identity.push(&record.identity);
            columns.note.push(&record.note);
        }
        columns
    }
}
