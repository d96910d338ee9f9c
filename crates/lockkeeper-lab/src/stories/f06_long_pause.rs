//! F6: a pause that outlasts the lease, and then a write.

use super::act::Act;
use super::client::Answer;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::Demands;
use crate::server::{Kind, Server};
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F6",
    slug: "F06-pause-past-the-lease",
    title: "A pause past the lease, then a write: a lost update",
    setting: "A and B each read a number from a resource and write back one more, under a lock in \
              Redis with a lease of 2 s. A has read and checked that it still holds the lock, and \
              is then stopped by its garbage collector, its hypervisor or a full disk, for longer \
              than the lease. No client can prevent that: between the last check and the write \
              there is always room for a pause.",
    lesson: "A lock with a lease cannot protect a resource from a holder that slept. A fencing \
             token can: it grows with every grant, is sent along with every write, and the \
             resource refuses one that is smaller than it has seen. `guard.token()` is that \
             number, in every sound recipe of lockkeeper.",
    needs: &[Kind::Redis],
    tell,
};

const LEASE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
/// For the picture.
const MOMENT: Duration = Duration::from_millis(300);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.redis().start()?;
    Ok(vec![paused(stage, &server, false)?, paused(stage, &server, true)?])
}

/// The same lock, the same pause at the same step; only the resource differs.
fn paused(stage: &Stage, server: &Server, fenced: bool) -> Result<Act> {
    let (mut scene, name) = if fenced {
        (Scene::cure(stage, "A resource that checks the fencing token")?, "fenced")
    } else {
        (Scene::failing(stage, "A resource that trusts the lock")?, "plain")
    };
    let url = server.url();
    let (mut a, mut b) = (scene.client("A", &url)?, scene.client("B", &url)?);
    scene.say("A takes the lock, with a lease of 2 s, and reads 0.");
    let answer = a.lock(name, LEASE, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    a.read()?;
    scene.say("A has checked that it holds the lock. Just before its write it is stopped.");
    a.pause()?;
    // It is in the pipe, and the first thing that A does when it goes on.
    a.begin_write(fenced)?;
    scene.say("B asks. It gets the lock when A's lease is over, as it should.");
    let answer = b.lock(name, LEASE, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    b.read()?;
    sleep(MOMENT);
    let taken = b.write(fenced)?;
    scene.must(taken, "B's write was refused")?;
    scene.mark("B", "writes 1", false);
    scene.say("B reads 0, writes 1, and gives the lock back.");
    sleep(MOMENT);
    b.release()?;
    sleep(MOMENT);
    scene.say("A goes on, and writes 1: it had read 0.");
    a.go_on()?;
    let taken = a.written()?;
    if fenced {
        scene.must(!taken, "A's write was taken")?;
        scene.mark("A", "refused: old token", false);
        scene.say("A's token is smaller than B's: the resource refuses the write, and A is told.");
        let mut demands = Demands { hand_overs: 1, clients: 2, ..Demands::none() };
        demands.faults.insert("pause".to_owned(), 1);
        scene.holds(
            &demands,
            &[],
            "every write that was acknowledged is there, and A knows that its is not",
        )
    } else {
        scene.must(taken, "A's write was refused")?;
        scene.mark("A", "overwrites B's", true);
        scene.say("The resource takes it. Two writes were acknowledged, and the number is 1.");
        scene.fails(&Sign::LostWrite)
    }
}
