//! F11: the holder dies: how long until the lock is free.

mod measure;

use super::act::Act;
use super::client::Answer;
use super::link::Link;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::{Kind, Server};
use anyhow::Result;
use measure::Fault;
use std::thread::sleep;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F11",
    slug: "F11-holder-dies",
    title: "The holder's process dies: how long until the lock is free",
    setting: "A holds a lock, and B waits for it. A's process is killed, or the cable to its machine \
              is cut. Somebody has to decide that A is gone. The tempting way is to free the lock \
              the moment A's connection ends, as databases do by themselves with locks of a \
              session. But a connection also ends when a firewall or an operator ends it, while A \
              lives and works on.",
    lesson: "From outside, a dead process and one that is only cut off look the same. So a lock that \
             excludes is free when the lease of its holder is over, and not sooner: choose a ttl (or \
             `session`) as long as a crash may cost you. `free_on_disconnect=true` is for those \
             whose data is guarded by a token.",
    needs: &[
        Kind::Redis,
        Kind::Redlock,
        Kind::ZooKeeper,
        Kind::Memcached,
        Kind::Etcd,
        Kind::Postgres,
        Kind::MariaDb,
    ],
    tell,
};

const TTL: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(20);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.postgres().start()?;
    let mut acts = vec![cut_off(stage, &server, true)?, cut_off(stage, &server, false)?];
    drop(server);
    acts.extend(measure::tell(stage, &[Fault::Kill, Fault::Cut])?);
    Ok(acts)
}

/// The server's end of A's connection goes, and A does not hear of it.
fn cut_off(stage: &Stage, server: &Server, at_once: bool) -> Result<Act> {
    let mut scene = if at_once {
        Scene::failing(stage, "Free when the connection ends (advisory, free_on_disconnect=true)")?
    } else {
        Scene::cure(stage, "Free when the lease is over (advisory)")?
    };
    let url = format!(
        "{}?recipe=advisory&session=6s&timeout=3s&free_on_disconnect={at_once}",
        server.url()
    );
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let mut b = scene.client("B", &url)?;
    scene.say("A takes the lock, which lives in its session, with a lease of 6 s.");
    let answer = a.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("B waits.");
    b.begin_lock("job", TTL, PATIENCE)?;
    sleep(Duration::from_millis(500));
    scene.must(b.still_waits(), "B did not wait")?;
    scene.say("Something between ends A's connection; the server notices, A does not.");
    let fault = scene.fault_begins("connection cut", "A");
    link.forget();
    let answer = b.answer()?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    if at_once {
        scene.mark("B", "two holders", true);
        scene.say("The server frees A's lock at once: B has it, while A is at work.");
    } else {
        scene.say("B gets it when A's lease is over. By then A has stopped.");
    }
    sleep(Duration::from_millis(500));
    b.release()?;
    scene.fault_ends(fault);
    if at_once {
        return scene.fails(&Sign::Broken(Rule::Exclusion));
    }
    let demands = Demands { hand_overs: 1, clients: 2, ..Demands::none() };
    scene.holds(&demands, &[], "B got it after A, not beside it")
}
