//! F10: a waiter in the middle of the queue dies.

use super::act::Act;
use super::client::Answer;
use super::f09_predecessor_dies::queue_of;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::wire::zookeeper::Session;
use crate::server::{Kind, Server};
use anyhow::{Context, Result};
use std::thread::sleep;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F10",
    slug: "F10-waiter-in-the-middle-dies",
    title: "A waiter in the middle of the queue dies",
    setting: "A holds a lock in ZooKeeper. B waits behind A, and C behind B; each watches the node \
              before its own. Then B dies, and its node goes. C is woken: the one before it is \
              gone.",
    lesson: "That the predecessor is gone does not mean that it is one's turn: it may have died \
             while it waited. A waiter that is woken must look at the queue again, and watch \
             whoever is before it now.",
    needs: &[Kind::ZooKeeper],
    tell,
};

const TTL: Duration = Duration::from_secs(8);
const SESSION: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(700);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.zookeeper().start()?;
    Ok(vec![trusting(stage, &server)?, looking(stage, &server)?])
}

fn trusting(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::failing(stage, "Woken means next (by hand)")?;
    let open = || Session::open(server.port(), SESSION);
    let (mut a, mut b, mut c) = (open()?, open()?, open()?);
    a.create("/trusting", false, false)?;
    scene.say("A is the first of the queue, and holds the lock.");
    let first = scene.asks("A", "job");
    let node_a = a.create("/trusting/n-", true, true)?;
    scene.granted("A", first, TTL);
    scene.say("B comes behind A, and watches A's node. C comes behind B, and watches B's.");
    let _second = scene.asks("B", "job");
    let node_b = b.create("/trusting/n-", true, true)?;
    scene.must(b.watch(&node_a)?, "A's node is gone")?;
    let third = scene.asks("C", "job");
    c.create("/trusting/n-", true, true)?;
    scene.must(c.watch(&node_b)?, "B's node is gone")?;
    scene.say("B's session ends, as it does when a process dies: ZooKeeper removes its node.");
    let fault = scene.fault_begins("kill", "B");
    b.close()?;
    scene.fault_ends(fault);
    let told = c.event(PATIENCE)?.context("C was not told")?;
    scene.must(told == node_b, format!("C was told of {told}"))?;
    scene.granted("C", third, TTL);
    scene.mark("C", "two holders", true);
    scene.say("C is told that the node before it is gone, and takes the lock. A still has it.");
    sleep(MOMENT);
    scene.gives_back("A", first);
    scene.gives_back("C", third);
    scene.say("A and C both give back what each believed to have alone.");
    scene.fails(&Sign::Broken(Rule::Exclusion))
}

fn looking(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::cure(stage, "Woken means: look again (recipe fair)")?;
    let url = |session: u32| format!("{}?timeout=9s&session={session}s", server.url());
    let mut a = scene.client("A", &url(10))?;
    let mut b = scene.client("B", &url(2))?;
    let mut c = scene.client("C", &url(10))?;
    scene.say("A holds the lock.");
    let answer = a.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("B waits behind A, and C behind B.");
    b.begin_lock("job", TTL, PATIENCE)?;
    queue_of(server, "/lockkeeper/job", 2)?;
    c.begin_lock("job", TTL, PATIENCE)?;
    queue_of(server, "/lockkeeper/job", 3)?;
    scene.say("B's process dies (kill -9). ZooKeeper removes its node when its session is over.");
    b.kill()?;
    queue_of(server, "/lockkeeper/job", 2)?;
    scene.mark("C", "woken, looks again, waits", false);
    scene.say("C is told, looks at the queue again, finds A before it, and waits on.");
    sleep(MOMENT);
    scene.must(c.still_waits(), "C did not wait for A")?;
    scene.say("A gives the lock back.");
    a.release()?;
    let answer = c.answer()?;
    scene.must(answer == Answer::Held, format!("C got {answer:?}"))?;
    scene.say("C has it, alone.");
    c.release()?;
    let demands = Demands { hand_overs: 1, clients: 2, ..Demands::none() };
    scene.holds(&demands, &[], "C got it after A, not beside it")
}
