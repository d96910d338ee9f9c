//! PostgreSQL and MariaDB: a lock compared with its bare statements on the same driver, and what it
//! costs to hand a lock on.

use anyhow::{Context, Result, ensure};
use lockkeeper::Keeper;
use lockkeeper_lab::server::{Lab, Server};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

const ROUNDS: u32 = 7;
const CYCLES: u32 = 300;
const TASKS: u32 = 16;
/// As many as a keeper has.
const CONNECTIONS: u32 = 4;
const TURNS: usize = 40;

fn main() -> Result<()> {
    let lab = Lab::open()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let server = lab.postgres().start()?;
    runtime.block_on(postgres(&server))?;
    drop(server);
    let server = lab.mariadb().start()?;
    runtime.block_on(mariadb(&server))
}

async fn postgres(server: &Server) -> Result<()> {
    let bare = Arc::new(BarePostgres::open(server.port()).await?);
    let table = lockkeeper::connect(&server.url()).await?;
    let advisory = lockkeeper::connect(&format!("{}?recipe=advisory", server.url())).await?;
    let for_update = lockkeeper::connect(&format!("{}?recipe=for-update", server.url())).await?;
    let theirs = bare.clone();
    let rows = move |task: u32| {
        let bare = theirs.clone();
        async move { bare.row(task).await }
    };
    compare("postgres table, one task", 1, rows.clone(), locking(&table)).await?;
    compare("postgres table, 16 tasks on 16 names", TASKS, rows, locking(&table)).await?;
    let theirs = bare.clone();
    let native = move |task: u32| {
        let bare = theirs.clone();
        async move { bare.advisory(task).await }
    };
    compare("postgres advisory, one task", 1, native, locking(&advisory)).await?;
    let theirs = bare.clone();
    let locked = move |_| {
        let bare = theirs.clone();
        async move { bare.for_update().await }
    };
    compare("postgres for-update, one task", 1, locked, locking(&for_update)).await?;
    let theirs = bare.clone();
    let row = move |task: u32| {
        let bare = theirs.clone();
        async move { bare.row(task).await }
    };
    hand_over("postgres table", &table, timed(1, CYCLES, row).await?).await
}

async fn mariadb(server: &Server) -> Result<()> {
    let bare = Arc::new(BareMariaDb::open(server.port()).await?);
    let table = lockkeeper::connect(&server.url()).await?;
    let get_lock = lockkeeper::connect(&format!("{}?recipe=get-lock", server.url())).await?;
    let theirs = bare.clone();
    let rows = move |task: u32| {
        let bare = theirs.clone();
        async move { bare.row(task).await }
    };
    compare("mariadb table, one task", 1, rows.clone(), locking(&table)).await?;
    compare("mariadb table, 16 tasks on 16 names", TASKS, rows.clone(), locking(&table)).await?;
    let theirs = bare.clone();
    let native = move |task: u32| {
        let bare = theirs.clone();
        async move { bare.get_lock(task).await }
    };
    compare("mariadb get-lock, one task", 1, native, locking(&get_lock)).await?;
    hand_over("mariadb table", &table, timed(1, CYCLES, rows).await?).await
}

/// Acquire and release, on a name of the task's own.
fn locking(
    keeper: &Keeper,
) -> impl Fn(u32) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>> + Clone + Send + 'static
{
    let keeper = keeper.clone();
    move |task| {
        let lock = keeper.lock(&format!("bench/{task}"));
        Box::pin(async move { Ok(lock.acquire().await?.release().await?) })
    }
}

/// Interleaved, so that a busy machine slows both; the best of each counts.
async fn compare<A, B, F, G>(what: &str, tasks: u32, bare: A, ours: B) -> Result<()>
where
    A: Fn(u32) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
    B: Fn(u32) -> G + Clone + Send + 'static,
    G: Future<Output = Result<()>> + Send,
{
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        best[0] = best[0].min(timed(tasks, CYCLES, bare.clone()).await?);
        best[1] = best[1].min(timed(tasks, CYCLES, ours.clone()).await?);
    }
    let [bare, ours] = best;
    println!(
        "{what}: {ours:.1?}, bare {bare:.1?}: {:.2} of bare (goal: 0.9)",
        bare.as_secs_f64() / ours.as_secs_f64()
    );
    Ok(())
}

/// The time per cycle when `tasks` tasks do `cycles` cycles each.
async fn timed<W, F>(tasks: u32, cycles: u32, work: W) -> Result<Duration>
where
    W: Fn(u32) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let begin = Instant::now();
    let task = |number: u32| {
        let work = work.clone();
        tokio::spawn(async move {
            for _ in 0..cycles {
                work(number).await?;
            }
            anyhow::Ok(())
        })
    };
    let all: Vec<_> = (0..tasks).map(task).collect();
    for task in all {
        task.await??;
    }
    Ok(begin.elapsed() / (tasks * cycles))
}

/// Sixteen tasks on one name: from one hold to the next, and how much longer than the mean anybody
/// waits.
async fn hand_over(what: &str, keeper: &Keeper, commits: Duration) -> Result<()> {
    let held = Arc::new(Mutex::new(Vec::new()));
    let task = |_| {
        let (keeper, held) = (keeper.clone(), held.clone());
        tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for _ in 0..TURNS {
                let begin = Instant::now();
                let guard = keeper.lock("handed").acquire().await?;
                longest = longest.max(begin.elapsed());
                held.lock().await.push(Instant::now());
                guard.release().await?;
            }
            anyhow::Ok(longest)
        })
    };
    let all: Vec<_> = (0..TASKS).map(task).collect();
    let mut longest = Duration::ZERO;
    for task in all {
        longest = longest.max(task.await??);
    }
    let held = held.lock().await;
    let mut gaps: Vec<Duration> = held.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort();
    let middle = *gaps.get(gaps.len() / 2).context("nobody held anything")?;
    let mean = gaps.iter().sum::<Duration>() / u32::try_from(gaps.len())?;
    println!(
        "{what}, 16 tasks on one name: p50 {middle:.1?}, two commits {commits:.1?}: {:.2} of them \
         (goal: 1.5); longest wait {:.1} turns (goal: 32)",
        middle.as_secs_f64() / commits.as_secs_f64(),
        longest.as_secs_f64() / mean.as_secs_f64()
    );
    Ok(())
}

/// The least that a lock in a row needs: take it if it is free or expired, and free it.
struct BarePostgres {
    clients: Vec<(Client, [Statement; 4])>,
}

impl BarePostgres {
    async fn open(port: u16) -> Result<Self> {
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let config = format!("host=127.0.0.1 port={port} user=lockkeeper dbname=lockkeeper");
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
            tokio::spawn(connection);
            if number == 0 {
                client
                    .batch_execute(
                        "CREATE TABLE bare (name text PRIMARY KEY, owner text NOT NULL, \
                           token bigint NOT NULL, expires timestamptz NOT NULL) \
                           WITH (fillfactor = 40); \
                         CREATE TABLE bare_row (name text PRIMARY KEY); \
                         INSERT INTO bare_row VALUES ('one')",
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
            let statements = [take.await?, free.await?, lock.await?, unlock.await?];
            clients.push((client, statements));
        }
        Ok(Self { clients })
    }

    fn of(&self, task: u32) -> &(Client, [Statement; 4]) {
        &self.clients[(task % CONNECTIONS) as usize]
    }

    async fn row(&self, task: u32) -> Result<()> {
        let (client, [take, free, ..]) = self.of(task);
        let (name, owner) = (format!("bench/{task}"), "bare");
        let taken = client.query(take, &[&name, &owner]).await?;
        let freed = client.query(free, &[&name, &owner]).await?;
        ensure!(taken.len() == 1 && freed.len() == 1, "the bare lock is not one");
        Ok(())
    }

    async fn advisory(&self, task: u32) -> Result<()> {
        let (client, [.., lock, unlock]) = self.of(task);
        let key = i64::from(task);
        client.query(lock, &[&key]).await?;
        client.query(unlock, &[&key]).await?;
        Ok(())
    }

    async fn for_update(&self) -> Result<()> {
        let (client, _) = self.of(0);
        client
            .batch_execute("BEGIN; SELECT 1 FROM bare_row WHERE name = 'one' FOR UPDATE NOWAIT")
            .await?;
        Ok(client.batch_execute("COMMIT").await?)
    }
}

/// The same on MariaDB, where a connection carries one request at a time.
struct BareMariaDb {
    clients: Vec<Mutex<Conn>>,
}

impl BareMariaDb {
    async fn open(port: u16) -> Result<Self> {
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(port);
            let opts = opts.user(Some("lockkeeper")).db_name(Some("lockkeeper"));
            let mut client = Conn::new(opts).await?;
            if number == 0 {
                client
                    .query_drop(
                        "CREATE TABLE bare (name varbinary(200) PRIMARY KEY, owner varchar(64) \
                         NOT NULL, token bigint NOT NULL, expires datetime(6) NOT NULL)",
                    )
                    .await?;
            }
            clients.push(Mutex::new(client));
        }
        Ok(Self { clients })
    }

    async fn row(&self, task: u32) -> Result<()> {
        let mut client = self.clients[(task % CONNECTIONS) as usize].lock().await;
        let taken: Option<String> = client
            .query_first(format!(
                "INSERT INTO bare VALUES ('bench/{task}', 'bare', 1, \
                   UTC_TIMESTAMP(6) + INTERVAL 30 SECOND) \
                 ON DUPLICATE KEY UPDATE \
                   token = IF(owner = '' OR expires < UTC_TIMESTAMP(6), token + 1, token), \
                   owner = IF(owner = '' OR expires < UTC_TIMESTAMP(6), 'bare', owner) \
                 RETURNING owner"
            ))
            .await?;
        let free = format!("UPDATE bare SET owner = '' WHERE name = 'bench/{task}'");
        client.query_drop(free).await?;
        ensure!(taken.as_deref() == Some("bare"), "the bare lock is not one");
        Ok(())
    }

    async fn get_lock(&self, task: u32) -> Result<()> {
        let mut client = self.clients[(task % CONNECTIONS) as usize].lock().await;
        client.query_drop(format!("SELECT GET_LOCK('bench/{task}', 0)")).await?;
        Ok(client.query_drop(format!("SELECT RELEASE_LOCK('bench/{task}')")).await?)
    }
}
