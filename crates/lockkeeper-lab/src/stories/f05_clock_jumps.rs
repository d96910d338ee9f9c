//! F5: the clock of one Redlock node jumps.

use super::act::Act;
use super::client::Answer;
use super::f04_node_restarts_empty::together;
use super::link::Link;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::Kind;
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F5",
    slug: "F05-redlock-clock-jumps",
    title: "The clock of one Redlock node jumps: two holders",
    setting: "Redlock again: A has nodes 1, 2 and 3 of five. Somebody sets the clock of node 3, or \
              its time service corrects it, by a few seconds. Redis counts time limits with that \
              clock, so A's vote at node 3 expires at once. A cannot know.",
    lesson: "Two hold for a while: no client of Redlock can prevent that, ours neither, since the \
             node itself is wrong about the time. What is left is the token. Ours is agreed on by \
             a majority, so that of the second holder is greater, and a resource that checks it \
             loses no write.",
    needs: &[Kind::Redis],
    tell,
};

const TTL: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(3);
/// For the picture.
const MOMENT: Duration = Duration::from_millis(300);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    Ok(vec![jump(stage, false)?, jump(stage, true)?])
}

fn jump(stage: &Stage, fenced: bool) -> Result<Act> {
    let servers = stage.lab.redis().clock().start_many(5)?;
    let mut scene = if fenced {
        Scene::cure(stage, "A resource that checks the fencing token")?
    } else {
        Scene::failing(stage, "A resource that trusts the lock")?
    };
    // They were started just now, and none forgets.
    let url = together(&servers, "timeout=1s&min_uptime=0s");
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let mut b = scene.client("B", &url)?;
    scene.say("A, which reaches nodes 1, 2 and 3, takes the lock for 6 s, and reads 0.");
    link.cut(3);
    link.cut(4);
    let answer = a.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    a.read()?;
    scene.say("The clock of node 3 jumps 12 s ahead: there, A's time is over.");
    let fault = scene.fault_begins("clock of node 3 jumps", "redis");
    servers[2].set_clock_ahead(TTL * 2)?;
    scene.fault_ends(fault);
    let answer = b.try_lock("job", TTL)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    scene.mark("B", "two holders", !fenced);
    scene.say("B asks, and gets nodes 3, 4 and 5: a majority. Both believe.");
    sleep(MOMENT);
    b.read()?;
    let taken = b.write(fenced)?;
    scene.must(taken, "B's write was refused")?;
    scene.say("B reads 0 and writes 1.");
    sleep(MOMENT);
    let taken = a.write(fenced)?;
    if fenced {
        scene.must(!taken, "A's write was taken")?;
        scene.mark("A", "refused: old token", false);
        scene.say("A writes 1, with its smaller token: the resource refuses.");
        b.release()?;
        let demands = Demands { clients: 2, ..Demands::none() };
        let found = "two believed, as before, and no acknowledged write was lost";
        return scene.holds(&demands, &[Rule::Exclusion], found);
    }
    scene.must(taken, "A's write was refused")?;
    scene.mark("A", "overwrites B's", true);
    scene.say("A writes 1: it had read 0. Two writes were acknowledged, and the number is 1.");
    b.release()?;
    scene.fails(&Sign::BrokenAndLost(Rule::Exclusion))
}
