//! F13: those who wait for a row use up all connections.

use super::act::{Act, Figure};
use super::scene::Scene;
use super::stage::Stage;
use super::story::Story;
use crate::check::Verdict;
use crate::server::wire::postgres::{Session, query};
use crate::server::{Kind, Server};
use anyhow::{Context, Result};
use lockkeeper::{ErrorKind, Guard};
use std::time::Duration;
use tokio::task::JoinSet;

pub(super) const STORY: Story = Story {
    id: "F13",
    slug: "F13-connections-used-up",
    title: "Those who wait with FOR UPDATE use up all connections",
    setting: "A lock made of a row that an open transaction has locked with SELECT … FOR UPDATE. It \
              costs a connection while it is held, and one more for everybody who waits. This \
              PostgreSQL allows 20. When the lock is wanted by as many, the database is closed to \
              everyone: also to the holder, which needs one more connection for its work.",
    lesson: "Wait in the program, not in the database. With `recipe=for-update` one session per \
             keeper and name waits, the other claims stand behind it in the process, and `sessions` \
             bounds how many there are: a claim beyond that is refused at once, with an error that \
             says so, and the pool of everybody else is left alone.",
    needs: &[Kind::Postgres],
    tell,
};

const CONNECTIONS: usize = 20;
const WAITERS: usize = 40;
const SESSIONS: usize = 5;
const LOCK: &str = "SELECT name FROM rows WHERE name = 'job' FOR UPDATE";
const TTL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of clients, except the one that asks.
const COUNT: &str =
    "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'";

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let setting = format!("max_connections={CONNECTIONS}");
    let server = stage.lab.postgres().config(&setting).start()?;
    let failing = one_each(stage, &server)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let cure = runtime.block_on(bounded(stage, &server))?;
    Ok(vec![failing, cure])
}

fn figures(used: usize, bad: bool) -> Vec<Figure> {
    let figure = |what: &str, value: usize, bad: bool| Figure {
        what: what.to_owned(),
        value: value as f64,
        written: value.to_string(),
        bad,
    };
    vec![
        figure("connections that the server allows", CONNECTIONS, false),
        figure("used by those who hold and wait", used, bad),
    ]
}

fn one_each(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::failing(stage, "Everybody waits in the database (by hand)")?;
    query(server.port(), "CREATE TABLE rows AS SELECT 'job'::text AS name")?;
    scene.say(
        "A opens a transaction and locks the row. It will need a second connection for its work.",
    );
    let mut holder = Session::open(server.port())?;
    holder.query("BEGIN")?;
    holder.query(LOCK)?;
    scene.say("One after the other, clients open a transaction and ask for the same row. The server lets them wait.");
    let mut crowd = Vec::new();
    let refused = loop {
        match Session::open(server.port()) {
            Ok(mut waiter) => {
                waiter.query("BEGIN")?;
                waiter.ask(LOCK)?;
                crowd.push(waiter);
            }
            Err(error) => break error.to_string(),
        }
        scene.must(crowd.len() <= CONNECTIONS, "more than the server allows")?;
    };
    let full = refused.contains("too many") || refused.contains("slots");
    scene.must(full, format!("the server said {refused}"))?;
    let used = 1 + crowd.len();
    scene.say(format!(
        "After {} of them the server refuses: \"sorry, too many clients already\".",
        crowd.len()
    ));
    let work = query(server.port(), "SELECT 1");
    scene.must(work.is_err(), "A got its second connection")?;
    scene.say("A asks for its second connection, and is refused. It cannot finish, so it does not give back.");
    let found = format!(
        "{} waiters used up {used} of {CONNECTIONS} connections, and the holder itself was refused",
        crowd.len()
    );
    drop((crowd, holder));
    Ok(scene.measured(Verdict::Fail, found, figures(used, true)))
}

async fn bounded(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene =
        Scene::cure(stage, "A bounded number of sessions (recipe for-update, ?sessions=5)")?;
    let port = server.port();
    let ask = move |sql: &'static str| tokio::task::spawn_blocking(move || query(port, sql));
    // The connections of the crowd end when the server has noticed.
    for _ in 0..100 {
        let left = ask(COUNT).await?.unwrap_or_default();
        if left.first().is_some_and(|left| left == "0") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let url = format!("{}?recipe=for-update&sessions={SESSIONS}&session=10s", server.url());
    let keeper = lockkeeper::connect(&url).await?;
    scene.say("A takes the lock.");
    let guard = keeper.lock("job").ttl(TTL).acquire().await?;
    scene.say(format!("{WAITERS} claims wait for it."));
    let mut crowd = JoinSet::new();
    for _ in 0..WAITERS {
        let lock = keeper.lock("job").ttl(TTL);
        crowd.spawn(async move { lock.acquire_within(PATIENCE).await?.release().await });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used: usize = ask(COUNT).await??.first().context("no count")?.parse()?;
    let work = ask("SELECT 1").await?;
    scene.must(work.is_ok(), format!("the holder was refused: {work:?}"))?;
    scene.say(format!(
        "They use {used} connections of {CONNECTIONS}. A does its work on another one."
    ));
    guard.release().await?;
    let mut turns = 0;
    while let Some(turn) = crowd.join_next().await {
        let turn = turn?;
        scene.must(turn.is_ok(), format!("a waiter got {turn:?}"))?;
        turns += 1;
    }
    scene.say(format!("A gives back, and all {turns} have their turn."));
    let mut held: Vec<Guard> = Vec::new();
    let refused = loop {
        match keeper.lock(format!("other/{}", held.len())).ttl(TTL).try_acquire().await {
            Ok(Some(guard)) => held.push(guard),
            Ok(None) => scene.must(false, "a lock that nobody has was taken")?,
            Err(error) => break error,
        }
        scene.must(held.len() <= SESSIONS, "more sessions than allowed")?;
    };
    let told = refused.kind() == ErrorKind::Exhausted;
    scene.must(told, format!("the answer was {refused}"))?;
    scene.say(format!(
        "{} other locks are taken at once; the next is refused at once: exhausted.",
        held.len()
    ));
    let within = used <= SESSIONS + 4 && turns == WAITERS;
    let verdict = if within { Verdict::Pass } else { Verdict::Fail };
    let found = format!(
        "{WAITERS} waiters used {used} of {CONNECTIONS} connections, and all had their turn"
    );
    drop(held);
    keeper.close(TTL).await;
    Ok(scene.measured(verdict, found, figures(used, !within)))
}
