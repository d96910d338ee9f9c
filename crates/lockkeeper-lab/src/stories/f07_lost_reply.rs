//! F7: the lock was granted, and the answer got lost.

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
    id: "F7",
    slug: "F07-lost-reply",
    title: "The reply to a lock request is lost: locked, and nobody knows",
    setting: "A asks Redis for a lock. Redis grants it, and the connection breaks before the \
              answer is there. A connects anew and asks again, and is told that somebody has the \
              lock. That somebody is A.",
    lesson: "An answer that did not come is neither yes nor no. A claim needs an id of its own, so \
             that whoever asks again can tell its own from another's, and what was granted \
             unheard can be taken back. Every claim of lockkeeper has one.",
    needs: &[Kind::Redis],
    tell,
};

const TTL: Duration = Duration::from_secs(2);
/// Nobody waits for this to end.
const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(5);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.redis().start()?;
    Ok(vec![same_value(stage, &server)?, own_value(stage, &server)?])
}

fn same_value(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::failing(stage, "Everybody writes the same value (recipe setnx-expire)")?;
    let url = format!("{}?recipe=setnx-expire&timeout=10s", server.url());
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let mut b = scene.client("B", &url)?;
    scene.say("A asks with SETNX. Redis grants it, and the connection breaks before the answer.");
    link.lose_answer(redis_command("SETNX"));
    let answer = a.try_lock("job", TTL)?;
    link.applied()?;
    scene.must(answer == Answer::Busy, format!("A got {answer:?}"))?;
    scene.mark("A", "told that it is taken", true);
    scene.say("A asks again on a new connection, is told that it is taken, and goes away.");
    let lives = server.redis()?.ask(&["PTTL", "job"])?.number();
    scene.must(lives == Some(-1), format!("the key lives for {lives:?} ms"))?;
    scene.healed();
    scene.say("The key is there, has no time limit, and no owner. B asks.");
    let answer = b.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::TimedOut, format!("B got {answer:?}"))?;
    scene.mark("B", "never granted", true);
    scene.say("B gave up after 5 s. Nobody holds the lock, and nobody will ever get it.");
    scene.fails(&Sign::Broken(Rule::Starved))
}

fn own_value(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::cure(stage, "Each claim has a value of its own (recipe set-nx-px)")?;
    let url = format!("{}?recipe=set-nx-px&timeout=10s", server.url());
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let mut b = scene.client("B", &url)?;
    scene.say("A asks for the lock for a minute. Redis grants it, and the connection breaks before the answer.");
    link.lose_answer(|piece| {
        [&b"\r\nSET\r\n"[..], b"EVAL"]
            .iter()
            .any(|word| piece.windows(word.len()).any(|it| it == *word))
    });
    let answer = a.lock("work", LONG, PATIENCE)?;
    link.applied()?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.mark("A", "knows its own", false);
    scene.say("A asks again on a new connection, finds its own value, and has the lock.");
    a.release()?;
    scene.healed();
    scene.say("A gives it back. B asks.");
    let answer = b.lock("work", LONG, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    scene.say("B has it, long before the minute is over.");
    b.release()?;
    let demands = Demands { hand_overs: 1, healed: true, ..Demands::none() };
    scene.holds(&demands, &[], "nothing was left behind by the answer that was lost")
}
