//! F4: a node of a Redlock restarts without its data.

use super::act::Act;
use super::client::Answer;
use super::link::Link;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::{Kind, Server};
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F4",
    slug: "F04-redlock-node-restarts-empty",
    title: "A node of a Redlock restarts empty and votes twice",
    setting: "Redlock takes a lock at five independent Redis servers; whoever has three of them \
              holds it. A reaches only nodes 1, 2 and 3, and has all three. Then node 3 crashes \
              and comes back without its data, as Redis does by default. It has forgotten its \
              vote for A, and nodes 4 and 5 never had one.",
    lesson: "A node that came back must not vote until every lease that it may have granted is \
             over. That is the *delayed restart* of the documents. `redlock://` does it by \
             itself: it asks each node since when it is up, and `min_uptime` (as long as the \
             longest ttl) is how old a node must be. `min_uptime=0s` turns it off and is plain \
             Redlock.",
    needs: &[Kind::Redis],
    tell,
};

/// As long as the longest lease, and short enough to wait for.
const TTL: Duration = Duration::from_secs(5);
/// Not renewed, which would give node 3 its vote back, before B has asked.
const LONG: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(5);
/// Shorter than the first renewal, for the same reason.
const IMPATIENCE: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(700);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    Ok(vec![restart(stage, false)?, restart(stage, true)?])
}

/// The URL of these nodes as one store.
pub(super) fn together(servers: &[Server], options: &str) -> String {
    let hosts: Vec<String> = servers.iter().map(Server::address).collect();
    format!("redlock://{}?{options}", hosts.join(","))
}

fn restart(stage: &Stage, delayed: bool) -> Result<Act> {
    let servers = stage.lab.redis().start_many(5)?;
    let (mut scene, options) = if delayed {
        // All five have been up for long when the story begins.
        sleep(TTL + Duration::from_secs(1));
        let heading = "A node that came back does not vote for 5 s (?min_uptime=5s)";
        (Scene::cure(stage, heading)?, "timeout=1s&min_uptime=5s")
    } else {
        let heading = "Plain Redlock (?min_uptime=0s)";
        (Scene::failing(stage, heading)?, "timeout=1s&min_uptime=0s")
    };
    let url = together(&servers, options);
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let mut b = scene.client("B", &url)?;
    scene.say("A cannot reach nodes 4 and 5. It asks, and gets nodes 1, 2 and 3: a majority.");
    link.cut(3);
    link.cut(4);
    let ttl = if delayed { TTL } else { LONG };
    let answer = a.lock("job", ttl, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("Node 3 crashes and comes back empty.");
    let fault = scene.fault_begins("node 3 restarts empty", "redis");
    servers[2].restart_empty()?;
    scene.fault_ends(fault);
    scene.say("B, which reaches all five, asks.");
    let answer = if delayed { b.lock("job", TTL, IMPATIENCE)? } else { b.try_lock("job", TTL)? };
    if !delayed {
        scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
        scene.mark("B", "two holders", true);
        scene.say("B gets nodes 3, 4 and 5: a majority, too.");
        sleep(MOMENT);
        scene.say("B gives it back. A still believes.");
        b.release()?;
        return scene.fails(&Sign::Broken(Rule::Exclusion));
    }
    scene.must(answer != Answer::Held, "B got it beside A")?;
    scene.mark("B", "node 3 does not vote", false);
    scene.say("Node 3 is too young to vote, so B gets only nodes 4 and 5, and not the lock.");
    a.release()?;
    scene.say("A gives it back. B asks again.");
    let answer = b.lock("job", TTL, TTL * 2)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    scene.say("B has it, alone.");
    b.release()?;
    let demands = Demands { hand_overs: 1, clients: 2, ..Demands::none() };
    scene.holds(&demands, &[], "B got it after A, not beside it")
}
