//! The bare statements, on the drivers that the library uses: as many round trips and commits as a
//! lock of ours, and nothing of it.

use anyhow::{Result, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

/// As many as a keeper has.
const CONNECTIONS: u32 = 4;

/// The least that a lock in a row needs: take it if it is free or expired, and free it.
pub(crate) struct BarePostgres {
    clients: Vec<(Client, [Statement; 7])>,
}

impl BarePostgres {
    pub(crate) async fn open(port: u16) -> Result<Self> {
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let config = format!("host=127.0.0.1 port={port} user=lockkeeper dbname=lockkeeper");
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
            tokio::spawn(connection);
            if number == 0 {
                client
                    .batch_execute(
                        "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, \
                           owner text NOT NULL, token bigint NOT NULL, expires timestamptz NOT NULL) \
                           WITH (fillfactor = 40); \
                         CREATE SEQUENCE IF NOT EXISTS bare_token; \
                         CREATE TABLE IF NOT EXISTS bare_row (name text PRIMARY KEY); \
                         INSERT INTO bare_row VALUES ('one') ON CONFLICT DO NOTHING; \
                         CREATE UNLOGGED TABLE IF NOT EXISTS bare_held (key bigint PRIMARY KEY, \
                           token bigint NOT NULL, believed timestamptz NOT NULL) \
                           WITH (fillfactor = 50)",
                    )
                    .await?;
            }
            let take = client.prepare(
                "INSERT INTO bare AS b VALUES ($1, $2, 1, clock_timestamp() + interval '30 s') \
                 ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = b.token + 1, \
                   expires = excluded.expires \
                 WHERE b.owner = '' OR b.expires < clock_timestamp() RETURNING token",
            );
            let free = client.prepare(
                "UPDATE bare SET owner = '' WHERE name = $1 AND owner = $2 RETURNING token",
            );
            let lock = client.prepare("SELECT pg_try_advisory_lock($1)");
            let unlock = client.prepare("SELECT pg_advisory_unlock($1)");
            let count = client.prepare("SELECT pg_try_advisory_lock($1), nextval('bare_token')");
            let hold = client.prepare(
                "WITH won AS MATERIALIZED (SELECT pg_try_advisory_lock($1) AS won), \
                 counted AS (INSERT INTO bare_held AS b \
                   SELECT $1, 1, clock_timestamp() + interval '10 s' FROM won WHERE won.won \
                   ON CONFLICT (key) DO UPDATE SET token = b.token + 1, \
                     believed = excluded.believed WHERE b.believed <= clock_timestamp() \
                   RETURNING token) \
                 SELECT won.won, counted.token FROM won LEFT JOIN counted ON true",
            );
            let let_go = client.prepare(
                "WITH done AS (UPDATE bare_held SET believed = '-infinity' WHERE key = $1 \
                   RETURNING 1) \
                 SELECT pg_advisory_unlock($1) FROM (SELECT count(*) FROM done) AS d",
            );
            let statements = [
                take.await?,
                free.await?,
                count.await?,
                hold.await?,
                let_go.await?,
                lock.await?,
                unlock.await?,
            ];
            clients.push((client, statements));
        }
        Ok(Self { clients })
    }

    fn of(&self, task: u32) -> &(Client, [Statement; 7]) {
        &self.clients[(task % CONNECTIONS) as usize]
    }

    pub(crate) async fn row(&self, task: u32) -> Result<()> {
        let (client, [take, free, ..]) = self.of(task);
        let (name, owner) = (format!("bench/{task}"), "bare");
        let taken = client.query(take, &[&name, &owner]).await?;
        let freed = client.query(free, &[&name, &owner]).await?;
        ensure!(taken.len() == 1 && freed.len() == 1, "the bare lock is not one");
        Ok(())
    }

    pub(crate) async fn advisory(&self, task: u32) -> Result<()> {
        let (client, [.., lock, unlock]) = self.of(task);
        let key = i64::from(task);
        client.query(lock, &[&key]).await?;
        client.query(unlock, &[&key]).await?;
        Ok(())
    }

    /// The same with a token, from a sequence that is read while the lock is held.
    pub(crate) async fn advisory_with_token(&self, task: u32) -> Result<()> {
        let (client, [_, _, count, .., unlock]) = self.of(task);
        let key = i64::from(task);
        client.query(count, &[&key]).await?;
        client.query(unlock, &[&key]).await?;
        Ok(())
    }

    /// The same with what makes it sound: a row with the token and the time until which the holder may
    /// believe, which the next holder looks at and giving back erases.
    pub(crate) async fn advisory_sound(&self, task: u32) -> Result<()> {
        let (client, [_, _, _, hold, let_go, ..]) = self.of(task);
        let key = i64::from(task);
        let held = client.query_one(hold, &[&key]).await?;
        ensure!(held.get::<_, Option<i64>>(1).is_some(), "the bare lock is not one");
        client.query(let_go, &[&key]).await?;
        Ok(())
    }

    pub(crate) async fn for_update(&self) -> Result<()> {
        let (client, _) = self.of(0);
        client
            .batch_execute("BEGIN; SELECT 1 FROM bare_row WHERE name = 'one' FOR UPDATE NOWAIT")
            .await?;
        Ok(client.batch_execute("COMMIT").await?)
    }
}

/// The same on MariaDB, where a connection carries one request at a time. Nobody keeps one while it
/// has the lock: then there would have to be a connection for each. The driver prepares each statement
/// once for each connection, as for ours.
pub(crate) struct BareMariaDb {
    clients: Vec<Mutex<Conn>>,
}

impl BareMariaDb {
    pub(crate) async fn open(port: u16) -> Result<Self> {
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(port);
            let opts = opts.user(Some("lockkeeper")).db_name(Some("lockkeeper"));
            let mut client = Conn::new(opts).await?;
            let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
            client.query_drop(level).await?;
            if number == 0 {
                client
                    .query_drop(
                        "CREATE TABLE IF NOT EXISTS bare (name varbinary(200) PRIMARY KEY, \
                         owner varchar(64) NOT NULL, token bigint NOT NULL, expires datetime(6) NOT NULL); \
                         CREATE TABLE IF NOT EXISTS bare_token (id int PRIMARY KEY, token bigint) \
                         ENGINE = MEMORY; \
                         CREATE TABLE IF NOT EXISTS bare_held (id int PRIMARY KEY, token bigint NOT NULL, \
                         believed bigint NOT NULL) ENGINE = MEMORY",
                    )
                    .await?;
            }
            clients.push(Mutex::new(client));
        }
        Ok(Self { clients })
    }

    pub(crate) async fn row(&self, task: u32) -> Result<()> {
        let client = &self.clients[(task % CONNECTIONS) as usize];
        // Assignments run from left to right, so the owner comes first.
        let take = "INSERT INTO bare VALUES (?, ?, 1, \
               UTC_TIMESTAMP(6) + INTERVAL 30 SECOND) ON DUPLICATE KEY UPDATE \
               owner = IF(owner = '' OR expires < UTC_TIMESTAMP(6), VALUES(owner), owner), \
               token = IF(owner = VALUES(owner), token + 1, token), \
               expires = IF(owner = VALUES(owner), VALUES(expires), expires) \
             RETURNING IF(owner = ?, token, NULL)";
        let (name, owner) = (format!("bench/{task}"), "bare");
        let taken: Option<Option<i64>> =
            client.lock().await.exec_first(take, (&name, owner, owner)).await?;
        ensure!(taken.flatten().is_some(), "the bare lock is not one");
        let free = "UPDATE bare SET owner = '' WHERE name = ? AND owner = ?";
        let mut client = client.lock().await;
        client.exec_drop(free, (&name, owner)).await?;
        ensure!(client.affected_rows() == 1, "the bare lock is not one");
        Ok(())
    }

    /// The same with a token, counted in a row in memory while the lock is held. Three statements in one
    /// request cannot be prepared.
    pub(crate) async fn get_lock_with_token(&self, task: u32) -> Result<()> {
        let mut client = self.clients[(task % CONNECTIONS) as usize].lock().await;
        let request = format!(
            "SELECT GET_LOCK('bench/{task}', 0); INSERT INTO bare_token VALUES ({task}, 1) \
             ON DUPLICATE KEY UPDATE token = token + 1; \
             SELECT token FROM bare_token WHERE id = {task}"
        );
        client.query_drop(request).await?;
        Ok(client.query_drop(format!("SELECT RELEASE_LOCK('bench/{task}')")).await?)
    }

    /// The same with what makes it sound: a row with the token and the time until which the holder may
    /// believe, which the next holder looks at and giving back erases.
    pub(crate) async fn get_lock_sound(&self, task: u32) -> Result<()> {
        let mut client = self.clients[(task % CONNECTIONS) as usize].lock().await;
        let clock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
        let hold = format!(
            "INSERT INTO bare_held SELECT ?, 1, {clock} + 10000000 FROM DUAL \
               WHERE GET_LOCK(?, 0) = 1 \
             ON DUPLICATE KEY UPDATE token = IF(believed > {clock}, token, token + 1), \
               believed = IF(believed > {clock}, believed, {clock} + 10000000) \
             RETURNING token"
        );
        let name = format!("bench/{task}");
        let held: Option<i64> = client.exec_first(hold, (task, &name)).await?;
        ensure!(held.is_some(), "the bare lock is not one");
        let let_go = "UPDATE bare_held SET believed = 0 WHERE id = ? AND RELEASE_LOCK(?) = 1";
        Ok(client.exec_drop(let_go, (task, &name)).await?)
    }

    pub(crate) async fn get_lock(&self, task: u32) -> Result<()> {
        let mut client = self.clients[(task % CONNECTIONS) as usize].lock().await;
        let name = format!("bench/{task}");
        client.exec_drop("SELECT GET_LOCK(?, 0)", (&name,)).await?;
        Ok(client.exec_drop("SELECT RELEASE_LOCK(?)", (&name,)).await?)
    }
}
