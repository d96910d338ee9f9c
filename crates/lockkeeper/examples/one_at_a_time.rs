//! One method, many machines, one thread at a time.
//!
//! Three machines with two threads each call the same method. Whatever machine and thread, only
//! one is in it at any moment.
//!
//! `cargo run -p lockkeeper --example one_at_a_time [-- --store URL]`

mod support;

use lockkeeper::Keeper;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::Story;

/// How many are in the method now. A real method on real machines could not have this; here it
/// is the witness.
#[derive(Default)]
struct Witness {
    inside: AtomicUsize,
}

async fn close_the_books(
    keeper: &Keeper,
    who: &str,
    witness: &Witness,
    story: Story,
) -> lockkeeper::Result<()> {
    let guard = keeper.lock("examples/close-the-books").note(who).acquire().await?;
    let others = witness.inside.fetch_add(1, Ordering::SeqCst);
    assert_eq!(others, 0, "two in the method at once");
    let token = guard.token().map_or(0, |token| token.get());
    story.tell(&format!("{who} is in, with token {token}"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    witness.inside.fetch_sub(1, Ordering::SeqCst);
    story.tell(&format!("{who} is out"));
    guard.release().await
}

#[tokio::main]
async fn main() -> lockkeeper::Result<()> {
    let story = Story::begin("Three machines, two threads each, one method.");
    let store = lockkeeper::open(&support::store()).await?;
    let witness = Arc::new(Witness::default());
    let mut threads = Vec::new();
    for machine in ["amsterdam", "berlin", "cairo"] {
        // Each machine has a keeper of its own, as it would in life.
        let keeper = Keeper::new(store.clone())?;
        for thread in 1..=2 {
            let (keeper, witness) = (keeper.clone(), witness.clone());
            let who = format!("{machine}, thread {thread}");
            threads.push(tokio::spawn(async move {
                close_the_books(&keeper, &who, &witness, story).await
            }));
        }
    }
    for thread in threads {
        thread.await.expect("no thread panicked")?;
    }
    story.tell("six calls, never two at once");
    Ok(())
}
