//! F3: the primary dies before it has replicated the lock.

use super::act::Act;
use super::client::Answer;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::Kind;
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

pub(super) const STORY: Story = Story {
    id: "F3",
    slug: "F03-primary-dies-before-replicating",
    title: "The primary dies before it has replicated the lock",
    setting: "Redis runs as a primary and a replica, for high availability. The primary answers a \
              client before the replica has what was written. If it dies in between, the replica \
              takes over and has never heard of the lock.",
    lesson: "Replication that is not waited for does not carry a lock over a failover. With \
             `?replicas=1` a claim is granted only when a replica has it, and withdrawn otherwise. \
             That narrows the gap and does not close it for every failover (a second replica may \
             be promoted that has not got it): where the data must be safe, check the token too.",
    needs: &[Kind::Redis],
    tell,
};

const TTL: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(3);
const MOMENT: Duration = Duration::from_millis(700);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    Ok(vec![failover(stage, false)?, failover(stage, true)?])
}

fn failover(stage: &Stage, waits: bool) -> Result<Act> {
    let mut scene = if waits {
        Scene::cure(stage, "Granted when a replica has it (?replicas=1)")?
    } else {
        Scene::failing(stage, "Granted when the primary has it (the default)")?
    };
    let group = stage.lab.redis().start_replicated(1)?;
    let (primary, replica) = (&group.primary, &group.replicas[0]);
    let options = if waits { "?timeout=1s&replicas=1" } else { "?timeout=1s" };
    let mut a = scene.client("A", &format!("{}{options}", primary.url()))?;
    if waits {
        scene.say("First without a fault: A takes the lock, which the replica has too, and gives it back.");
        let answer = a.lock("job", TTL, PATIENCE)?;
        scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
        a.release()?;
    }
    scene.say("The link from the primary to its replica breaks.");
    let broken = scene.fault_begins("replication cut", "redis");
    replica.pause()?;
    // What is on its way already would be read when the replica goes on.
    primary.redis()?.ask(&["CLIENT", "KILL", "TYPE", "replica"])?;
    scene.say("A asks the primary for the lock.");
    let answer = a.lock("job", TTL, PATIENCE)?;
    if waits {
        scene.must(
            matches!(answer, Answer::Unknown(_) | Answer::TimedOut),
            format!("A got {answer:?}"),
        )?;
        scene.say("No replica has it, so it is not granted: A is told that the store cannot, and does not begin.");
        scene.mark("A", "not granted", false);
    } else {
        scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
        scene.say("A has the lock, for 8 s, and begins to work.");
    }
    primary.kill()?;
    replica.resume()?;
    replica.redis()?.ask(&["REPLICAOF", "NO", "ONE"])?;
    scene.fault_ends(broken);
    scene.say("The primary dies, and the replica is promoted. B asks it for the lock.");
    let mut b = scene.client("B", &format!("{}?timeout=1s", replica.url()))?;
    let answer = b.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    if waits {
        scene.say("B has it, and nobody else believes so.");
        sleep(MOMENT);
        b.release()?;
        let demands = Demands { hand_overs: 1, clients: 2, ..Demands::none() };
        return scene.holds(
            &demands,
            &[],
            "A was not told that it holds what the replica never had",
        );
    }
    scene.mark("B", "two holders", true);
    scene.say("The new primary knows of no lock: B has it, while A is at work.");
    sleep(MOMENT);
    scene.say("B gives it back. A still believes.");
    b.release()?;
    scene.fails(&Sign::Broken(Rule::Exclusion))
}
