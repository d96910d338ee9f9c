//! F2: the story of A, B and C: a late unlock frees the lock of another.

use super::act::Act;
use super::client::Answer;
use super::link::{Link, redis_command};
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::{Kind, Server};
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F2",
    slug: "F02-unlocking-anothers-lock",
    title: "A late unlock frees the lock of somebody else",
    setting: "Three programs, A, B and C, share a lock in Redis. A gives it back with DEL, but the \
              request is stuck in the network. Meanwhile A's time limit passes, and B gets the \
              lock. Then A's DEL arrives.",
    lesson: "Give a lock back only if it is still one's own, and check that in the same atomic step \
             as the deletion. Every release of lockkeeper does, in every store: it names the claim \
             that it gives back.",
    needs: &[Kind::Redis],
    tell,
};

const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);
/// For the picture.
const MOMENT: Duration = Duration::from_millis(700);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.redis().start()?;
    Ok(vec![without_owner(stage, &server)?, with_owner(stage, &server)?])
}

fn without_owner(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::failing(stage, "DEL, whoever has it (recipe setnx-expire)")?;
    let url = format!("{}?recipe=setnx-expire&timeout=10s", server.url());
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let (mut b, mut c) = (scene.client("B", &url)?, scene.client("C", &url)?);
    scene.say("A takes the lock for 2 s.");
    let answer = a.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("A gives it back; the DEL is stuck on its way.");
    link.hold(redis_command("DEL"));
    a.begin_release()?;
    link.applied()?;
    scene.mark("A", "DEL is stuck", false);
    scene.say("B asks, and gets the lock when A's 2 s are over.");
    let answer = b.lock("job", LONG, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    let answer = c.try_lock("job", LONG)?;
    scene.must(answer == Answer::Busy, format!("C got {answer:?} beside B"))?;
    scene.say("C asks and is told that the lock is taken, as it should be. Now A's DEL arrives.");
    link.pass();
    a.released()?;
    let answer = c.lock("job", LONG, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("C got {answer:?}"))?;
    scene.say("It has deleted B's lock: C asks again and gets it, while B is at work.");
    scene.mark("C", "two holders", true);
    sleep(MOMENT);
    scene.say("B and C both give back what each believes to have alone.");
    b.release()?;
    c.release()?;
    scene.fails(&Sign::Broken(Rule::Exclusion))
}

fn with_owner(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::cure(stage, "Delete only what is one's own (recipe set-nx-px)")?;
    let url = format!("{}?recipe=set-nx-px&timeout=10s", server.url());
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let (mut b, mut c) = (scene.client("B", &url)?, scene.client("C", &url)?);
    scene.say("A takes the lock for 2 s. Its value is a number that only A knows.");
    let answer = a.lock("work", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("A gives it back by a script: delete if the value is mine. It is stuck on its way.");
    link.hold(|piece| piece.windows(4).any(|part| part == b"EVAL"));
    a.begin_release()?;
    link.applied()?;
    scene.mark("A", "the script is stuck", false);
    scene.say("B asks, and gets the lock when A's 2 s are over.");
    let answer = b.lock("work", LONG, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    scene.say("A's script arrives, finds B's value, and deletes nothing. C asks.");
    link.pass();
    a.released()?;
    let answer = c.lock("work", LONG, MOMENT)?;
    scene.must(answer != Answer::Held, "C got it beside B")?;
    scene.say("C was kept out. B gives the lock back, and C asks again.");
    b.release()?;
    let answer = c.lock("work", LONG, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("C got {answer:?}"))?;
    scene.say("C has it, alone.");
    c.release()?;
    let demands = Demands { hand_overs: 2, clients: 3, ..Demands::none() };
    scene.holds(&demands, &[], "A, B and C held it one after the other")
}
