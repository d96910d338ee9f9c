//! F8: a thousand wait, and all of them are woken at once.

use super::act::{Act, Figure};
use super::scene::Scene;
use super::stage::Stage;
use super::story::Story;
use crate::check::Verdict;
use crate::server::wire::zookeeper::{Session, metric};
use crate::server::{Kind, Server};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub(super) const STORY: Story = Story {
    id: "F8",
    slug: "F08-herd",
    title: "The herd: every waiter is woken by every release",
    setting: "A thousand clients wait for one lock in ZooKeeper. In the simplest recipe all of them \
              watch the one node that is the lock. When it is deleted the server tells all of them, \
              all of them try to create it, and one succeeds. The others set their watch again, \
              until the next release.",
    lesson: "Let each waiter watch only the one before it. In the fair recipe of ZooKeeper every \
             claim is a numbered node, the smallest holds, and a release wakes one. The other \
             stores have the same property by other means: a hand-over names who is next.",
    needs: &[Kind::ZooKeeper],
    tell,
};

/// How often the server told anyone that a node is gone.
const WOKEN: &str = "zk_sum_node_deleted_watch_count";
const LONG: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(120);
/// Sessions that say nothing must last as long as the story.
const SESSION: Duration = Duration::from_secs(40);
const TURNS: u64 = 10;

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let waiters = if stage.whole { 1000 } else { 100 };
    let server = stage.lab.zookeeper().tick(2000).start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let all = all_watch_one(stage, &server, waiters)?;
    Ok(vec![all, runtime.block_on(each_watches_one(stage, &server, waiters))?])
}

fn figures(per_release: f64, waiters: usize, bad: bool) -> Vec<Figure> {
    let figure = |what: &str, value: f64, bad: bool| Figure {
        what: what.to_owned(),
        value,
        written: format!("{value:.0}"),
        bad,
    };
    vec![
        figure("who waits", waiters as f64, false),
        figure("who is woken by a release", per_release.round(), bad),
    ]
}

fn all_watch_one(stage: &Stage, server: &Server, waiters: usize) -> Result<Act> {
    let mut scene = Scene::failing(stage, "All watch the one node that is the lock")?;
    let mut holder = Session::open(server.port(), SESSION)?;
    holder.create("/herd", true, false)?;
    scene.say(format!(
        "One holds the lock. {waiters} clients, each with a session of its own, watch its node."
    ));
    let mut crowd = Vec::new();
    for _ in 0..waiters {
        let mut waiter = Session::open(server.port(), SESSION)?;
        scene.must(waiter.watch("/herd")?, "the lock is gone already")?;
        crowd.push(waiter);
    }
    let before = metric(server.port(), WOKEN)?;
    scene.say("The holder gives the lock back: it deletes the node.");
    holder.delete("/herd")?;
    let (mut told, mut won) = (0, 0);
    for waiter in &mut crowd {
        told += usize::from(waiter.event(Duration::from_secs(10))?.is_some());
    }
    let woken = metric(server.port(), WOKEN)? - before;
    scene.say(format!("The server sent {woken} messages, and {told} clients were woken. All of them try to create the node."));
    for waiter in &mut crowd {
        won += usize::from(waiter.create("/herd", true, false).is_ok());
    }
    scene
        .say(format!("{won} succeeded. {} were woken for nothing, and will be again.", told - won));
    let herd = woken == u64::try_from(waiters)? && told == waiters && won == 1;
    let verdict = if herd { Verdict::Fail } else { Verdict::Unknown };
    let found = format!(
        "a herd of {woken}: one release woke {told} of {waiters} waiters, for {won} to win"
    );
    Ok(scene.measured(verdict, found, figures(woken as f64, waiters, true)))
}

async fn each_watches_one(stage: &Stage, server: &Server, waiters: usize) -> Result<Act> {
    let mut scene = Scene::cure(stage, "Each watches the one before it (recipe fair)")?;
    let mut keepers = Vec::new();
    for _ in 0..10 {
        let url = format!("{}?session=40s&timeout=15s", server.url());
        keepers.push(lockkeeper::connect(&url).await?);
    }
    let mut guard = keepers[0].lock("job").ttl(LONG).acquire().await?;
    scene.say(format!("One holds the lock. {waiters} claims wait in {} sessions.", keepers.len()));
    let (granted, mut grants) = mpsc::unbounded_channel();
    for number in 0..waiters {
        let lock = keepers[number % keepers.len()].lock("job").ttl(LONG);
        let granted = granted.clone();
        tokio::spawn(async move { granted.send(lock.acquire_within(LONG).await) });
    }
    let begin = Instant::now();
    while keepers[0].show("job").await?.waiters.len() < waiters {
        scene.must(begin.elapsed() < PATIENCE, "not all of them stand in the queue")?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A node is there a moment before its owner watches the one before it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = metric(server.port(), WOKEN)?;
    scene.say(format!("The lock is given back {TURNS} times, each time by the one who has it."));
    for _ in 0..TURNS {
        guard.release().await?;
        guard = grants.recv().await.context("the waiters are gone")??;
    }
    // The server's messages are sent before the answer to the deletion that causes them.
    let woken = metric(server.port(), WOKEN)? - before;
    scene.say(format!("{TURNS} waiters had their turn. The server sent {woken} messages."));
    let each = woken as f64 / TURNS as f64;
    // A holder also watches its own node, to learn when somebody breaks its lock.
    let few = (TURNS / 2..=TURNS * 2).contains(&woken);
    let verdict = if few { Verdict::Pass } else { Verdict::Fail };
    let found = format!(
        "{woken} wake-ups for {TURNS} releases, {each:.1} each (the next one, and the holder's watch on its own node), with {waiters} waiting"
    );
    // The rest of the queue is not waited for.
    drop((guard, grants, keepers));
    Ok(scene.measured(verdict, found, figures(each, waiters, !few)))
}
