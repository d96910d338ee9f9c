//! F1: SETNX, then EXPIRE, and a crash between the two.

use super::act::Act;
use super::client::Answer;
use super::link::{Link, redis_command};
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::{Kind, Server};
use anyhow::Result;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F1",
    slug: "F01-crash-between-setnx-and-expire",
    title: "A crash between SETNX and EXPIRE locks for ever",
    setting: "Two programs, A and B, share a lock in Redis. The oldest recipe takes it with SETNX \
              (set if nobody has) and then gives it a time limit with EXPIRE. Those are two \
              commands: if the program dies after the first and before the second, the lock has no \
              time limit, and nobody is left to give it back.",
    lesson: "Take the lock and set its time limit in one atomic step: `SET name value NX PX ms`. \
             Every recipe of lockkeeper does, except the two historic ones that exist to show this.",
    needs: &[Kind::Redis],
    tell,
};

const TTL: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(5);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.redis().start()?;
    Ok(vec![two_commands(stage, &server)?, one_command(stage, &server)?])
}

fn two_commands(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::failing(stage, "SETNX, then EXPIRE (recipe setnx-expire)")?;
    let url = format!("{}?recipe=setnx-expire&timeout=10s", server.url());
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let mut b = scene.client("B", &url)?;
    link.hold(redis_command("EXPIRE"));
    scene.say("A asks for the lock: SETNX succeeds, A has it.");
    a.begin_lock("job", TTL, PATIENCE)?;
    link.applied()?;
    scene.mark("A", "SETNX done, no EXPIRE", true);
    scene.say("A is killed (kill -9) before its EXPIRE reaches Redis.");
    a.kill()?;
    let lives = server.redis()?.ask(&["PTTL", "job"])?.number();
    scene.must(lives == Some(-1), format!("the key lives for {lives:?} ms"))?;
    scene.healed();
    scene.say(
        "Everything works again. Redis says that the key has no time limit (PTTL is -1). B asks.",
    );
    let answer = b.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::TimedOut, format!("B got {answer:?}"))?;
    scene.say(format!(
        "B waited {} s, more than twice the {} s that the lock was meant to last, and gave up.",
        PATIENCE.as_secs(),
        TTL.as_secs()
    ));
    scene.mark("B", "never granted", true);
    scene.fails(&Sign::Broken(Rule::Starved))
}

fn one_command(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::cure(stage, "SET NX PX, one command (recipe set-nx-px)")?;
    let url = format!("{}?recipe=set-nx-px&timeout=10s", server.url());
    let (mut a, mut b) = (scene.client("A", &url)?, scene.client("B", &url)?);
    scene.say("A asks for the lock: one command takes it and limits it to 2 s.");
    let answer = a.lock("work", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("A is killed (kill -9) at once.");
    a.kill()?;
    scene.healed();
    scene.say("B asks, and waits for the time limit.");
    let answer = b.lock("work", TTL, PATIENCE * 2)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    scene.say("The time limit is over: B has the lock.");
    b.release()?;
    let demands = Demands { hand_overs: 1, healed: true, ..Demands::none() };
    scene.holds(&demands, &[], "the lock of the dead A was free when its time limit was over")
}
