//! F12: an unlock that failed leaves its row behind.

use super::act::Act;
use super::client::Answer;
use super::link::Link;
use super::scene::{Scene, Sign};
use super::stage::Stage;
use super::story::Story;
use crate::check::{Demands, Rule};
use crate::server::wire::postgres::Session;
use crate::server::{Kind, Server};
use anyhow::Result;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const STORY: Story = Story {
    id: "F12",
    slug: "F12-row-left-behind",
    title: "A row that a failed unlock left behind locks for ever",
    setting: "A lock made of a table with a unique index: to insert the row is to lock, to delete it \
              is to unlock. A's DELETE is lost with its connection, and A ends. The row stays, and a \
              database does not forget.",
    lesson: "A row needs a time limit, by the database's clock, and somebody who clears it away. In \
             lockkeeper's tables every claim has one; whoever asks next takes over what has expired, \
             in the same statement, and old rows are cleaned away by keepers that are in use.",
    needs: &[Kind::Postgres],
    tell,
};

const TTL: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(15);
const IN_VAIN: Duration = Duration::from_secs(4);

fn tell(stage: &Stage) -> Result<Vec<Act>> {
    let server = stage.lab.postgres().start()?;
    Ok(vec![bare(stage, &server)?, limited(stage, &server)?])
}

fn bare(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::failing(stage, "INSERT to lock, DELETE to unlock (by hand)")?;
    let mut b = Session::open(server.port())?;
    b.query("CREATE TABLE locks (name text PRIMARY KEY, owner text)")?;
    let link = Link::before(&server.url())?;
    let mut a = Session::open(link.port())?;
    scene.say("A inserts the row of the lock, and has it.");
    let first = scene.asks("A", "job");
    a.query("INSERT INTO locks VALUES ('job', 'A')")?;
    scene.granted("A", first, PATIENCE);
    scene.say("A has done its work and sends the DELETE; the connection breaks before it arrives.");
    link.hold(|piece| piece.windows(6).any(|part| part == b"DELETE"));
    a.ask("DELETE FROM locks WHERE name = 'job'")?;
    link.applied()?;
    scene.gives_back("A", first);
    link.reset();
    scene.mark("A", "DELETE is lost", true);
    scene.say("A logs an error and ends. Everything else works. B tries to insert its row.");
    drop(a);
    scene.healed();
    let second = scene.asks("B", "job");
    let begin = Instant::now();
    let mut tries = 0;
    while begin.elapsed() < IN_VAIN {
        let inserted =
            b.query("INSERT INTO locks VALUES ('job', 'B') ON CONFLICT DO NOTHING RETURNING 1")?;
        scene.must(inserted.is_empty(), "B got it")?;
        tries += 1;
        sleep(Duration::from_millis(200));
    }
    scene.gave_up("B", second);
    scene.mark("B", "never granted", true);
    let rows = b.query("SELECT owner FROM locks")?;
    scene.must(rows == ["A"], format!("the rows are {rows:?}"))?;
    scene.leftover("job");
    scene.say(format!("{tries} tries in 4 s found the row of an A that is long gone."));
    scene.fails(&Sign::Broken(Rule::Starved))
}

fn limited(stage: &Stage, server: &Server) -> Result<Act> {
    let mut scene = Scene::cure(stage, "A row with a time limit (recipe table)")?;
    let url = format!("{}?recipe=table&timeout=2s", server.url());
    let link = Link::before(&url)?;
    let mut a = scene.client("A", &link.url(&url)?)?;
    let mut b = scene.client("B", &url)?;
    scene.say("A takes the lock for 3 s.");
    let answer = a.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("A got {answer:?}"))?;
    scene.say("A has done its work and gives back; nothing of that arrives, and A ends.");
    link.cut_all();
    a.begin_release()?;
    sleep(Duration::from_millis(300));
    a.kill()?;
    scene.mark("A", "the release is lost", false);
    scene.healed();
    scene.say("B asks. The row is still A's, and expires.");
    let answer = b.lock("job", TTL, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("B got {answer:?}"))?;
    scene.say("The 3 s are over: the statement with which B asks takes the row over.");
    b.release()?;
    let demands = Demands { hand_overs: 1, clients: 2, healed: true, ..Demands::none() };
    scene.holds(&demands, &[], "the row that was left behind was free when its time was over")
}
