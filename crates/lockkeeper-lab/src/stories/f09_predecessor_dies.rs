//! F9: the predecessor goes between listing the queue and watching it.

use super::act::Act;
use super::client::Answer;
use super::link::Link;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Stalls};
use crate::server::wire::zookeeper::{Session, sets_watch};
use crate::server::{Kind, Server};
use anyhow::{Context, Result};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const STORY: Story = Story {
    id: "F9",
    slug: "F09-predecessor-dies-before-the-watch",
    title: "The predecessor dies between listing and watching",
    setting: "In ZooKeeper's queue the smallest number holds, and each waiter watches the node \
              before its own. A waiter first lists the queue, to see who that is, and then sets \
              the watch. Those are two requests. If the predecessor's node goes in between, there \
              is nothing left that could wake the waiter.",
    lesson: "Setting a watch and learning whether the node is still there must be one atomic step, \
             and its answer must be looked at: where the node is gone, list again. ZooKeeper's \
             `getData` and `exists` do both at once.",
    needs: &[Kind::ZooKeeper],
    tell,
};

const TTL: Duration = Duration::from_secs(8);
const SESSION: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(20);
/// More than enough for a message that comes.
const IN_VAIN: Duration = Duration::from_secs(6);
/// A dead holder keeps its node for a session of 2 s.
const STALLS: Stalls =
    Stalls { explained: Duration::from_secs(3), tolerated: Duration::from_secs(2) };

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.zookeeper().start()?;
    Ok(vec![blind(stage, &server)?, looking(stage, &server)?])
}

/// Waits until the queue of a lock has this length.
pub(super) fn queue_of(server: &Server, path: &str, length: usize) -> Result<()> {
    let begin = Instant::now();
    loop {
        let mut session = Session::open(server.port(), SESSION)?;
        if session.children(path)?.len() == length {
            return session.close();
        }
        session.close()?;
        anyhow::ensure!(begin.elapsed() < PATIENCE, "the queue never had {length} nodes");
        sleep(Duration::from_millis(50));
    }
}

fn blind(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::failing(stage, "List, then watch, without a second look (by hand)")?;
    let (mut a, mut b) =
        (Session::open(server.port(), SESSION)?, Session::open(server.port(), SESSION)?);
    a.create("/blind", false, false)?;
    scene.say("A creates the first node of the queue, and holds the lock.");
    let first = scene.asks("A", "job");
    a.create("/blind/n-", true, true)?;
    scene.granted("A", first, TTL);
    scene.say("B creates a node behind it, and lists the queue: the one before it is A's.");
    let second = scene.asks("B", "job");
    let own = b.create("/blind/n-", true, true)?;
    let before = b.children("/blind")?.first().context("an empty queue")?.clone();
    scene.must(!own.ends_with(&before), "B is the first")?;
    scene.say("A's session ends, as it does when a process dies: ZooKeeper removes its node.");
    let fault = scene.fault_begins("kill", "A");
    a.close()?;
    scene.fault_ends(fault);
    scene.say("Only now B sets its watch on A's node, does not look at the answer, and waits.");
    let there = b.watch(&format!("/blind/{before}"))?;
    scene.must(!there, "A's node is still there")?;
    scene.mark("B", "watches a node that is gone", true);
    let told = b.event(IN_VAIN)?;
    scene.must(told.is_none(), format!("B was told of {told:?}"))?;
    let queue = b.children("/blind")?;
    let first = queue.len() == 1 && own.ends_with(&queue[0]);
    scene.must(first, format!("the queue is {queue:?}"))?;
    scene.gave_up("B", second);
    scene.say("Nothing came. B is the first of the queue, nobody holds the lock, and B sleeps.");
    scene.fails(&Sign::Stalled(STALLS))
}

fn looking(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::cure(stage, "Watch and look in one step (recipe fair)")?;
    let url = |session: u32| format!("{}?timeout=9s&session={session}s", server.url());
    let mut a = scene.client("A", &url(2))?;
    let link = Link::before(&url(10))?;
    let mut b = scene.client("B", &link.url(&url(10))?)?;
    scene.say("A holds the lock.");
    let answer = a.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("B creates a node behind it, lists the queue, and asks to watch A's node. That request is held up.");
    link.hold(sets_watch);
    b.begin_lock("job", TTL, PATIENCE)?;
    link.applied()?;
    scene.say("A's process dies (kill -9). ZooKeeper removes its node when its session is over.");
    a.kill()?;
    queue_of(server, "/lockkeeper/job", 1)?;
    scene.say("Only now B's request arrives: no such node. B looks at the queue again.");
    link.pass();
    let answer = b.answer()?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    scene.say("B is the first, and has the lock.");
    b.release()?;
    let demands = Demands { hand_overs: 1, clients: 2, stalls: Some(STALLS), ..Demands::none() };
    scene.holds(&demands, &[], "B noticed that the node before it was gone, and held")
}
