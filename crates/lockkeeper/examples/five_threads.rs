//! Five threads contend for one lock: each is willing to wait ten seconds, and works for three.
//!
//! The first four get it after 0, 3, 6 and 9 seconds. The fifth would have to wait twelve, gives
//! up after ten, and is told who was in its way.
//!
//! `cargo run -p lockkeeper --example five_threads [-- --store URL]`

mod support;

use lockkeeper::ErrorKind;
use lockkeeper::blocking::Keeper;
use std::thread;
use std::time::Duration;
use support::Story;

const PATIENCE: Duration = Duration::from_secs(10);
const WORK: Duration = Duration::from_secs(3);

/// Whether the thread got its turn.
fn take_a_turn(keeper: &Keeper, number: usize, story: Story) -> lockkeeper::Result<bool> {
    let lock = keeper.lock("examples/five-threads").note(&format!("thread {number}"));
    match lock.acquire_within(PATIENCE) {
        Ok(guard) => {
            story.tell(&format!("thread {number} has the lock and works for {WORK:?}"));
            thread::sleep(WORK);
            guard.release()?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            story.tell(&format!("thread {number} gives up: {error}"));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn main() -> lockkeeper::Result<()> {
    let story = Story::begin("Five threads, one lock, ten seconds of patience each.");
    let keeper = lockkeeper::blocking::connect(&support::store())?;
    let threads: Vec<_> = (1..=5)
        .map(|number| {
            let keeper = keeper.clone();
            thread::spawn(move || take_a_turn(&keeper, number, story))
        })
        .collect();
    let mut turns = 0;
    for thread in threads {
        turns += usize::from(thread.join().expect("no thread panicked")?);
    }
    story.tell(&format!("{turns} of five had their turn"));
    Ok(())
}
