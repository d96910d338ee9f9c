//! Ids that go on while a database is down: two databases, each of which gives every second number.
//!
//! Neither knows of the other. When one is taken away, the other goes on alone; when it is back, its
//! numbers are where the clock is, and not where it stopped.
//!
//! `cargo run -p lockkeeper --example ids_while_a_database_is_down [-- --store URL]`: the URL is that of the
//! second database; the first is a file, which is taken away.

mod support;

use lockkeeper::id::{Generator, Striped};
use std::collections::HashSet;
use std::time::Duration;
use support::Story;

async fn take(ids: &Striped, seen: &mut HashSet<u64>, story: Story) -> lockkeeper::Result<()> {
    let mut last = None;
    for id in ids.next_n(3).await? {
        let database = id.get() % 2 + 1;
        story.tell(&format!("  {id}, of database {database}"));
        assert!(seen.insert(id.get()), "{id} came twice");
        assert!(last < Some(id.get()), "they increase");
        last = Some(id.get());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> lockkeeper::Result<()> {
    let story = Story::begin("Two databases give ids, and one of them goes down.");
    let folder = std::env::temp_dir().join(format!("lockkeeper-striped-{}", std::process::id()));
    let (here, away) = (folder.join("here"), folder.join("away"));
    std::fs::create_dir_all(&here).expect("a folder can be made");
    let one = format!("sqlite:{}", here.join("one.db").display());
    let two = support::store();
    // A key of its own for each run: the first database is new, and the second may not be.
    let key = format!("examples/{}/orders", std::process::id());
    let mut seen = HashSet::new();

    let ids = Striped::connect(&[&one, &two], &key).await?;
    story.tell("both are there");
    take(&ids, &mut seen, story).await?;

    std::fs::rename(&here, &away).expect("the folder can be moved away");
    story.tell("database 1 is taken away");
    // A file that was seen a moment ago is not looked for again.
    tokio::time::sleep(Duration::from_millis(50)).await;
    take(&ids, &mut seen, story).await?;
    let trouble = ids.health().trouble.expect("it says so");
    story.tell(&format!("how it is doing: {trouble}"));

    std::fs::rename(&away, &here).expect("the folder can be moved back");
    story.tell("database 1 is back, and another program begins");
    let other = Striped::connect(&[&one, &two], &key).await?;
    take(&other, &mut seen, story).await?;
    take(&ids, &mut seen, story).await?;

    drop((ids, other));
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    story.tell(&format!("{} ids, each once", seen.len()));
    Ok(())
}
