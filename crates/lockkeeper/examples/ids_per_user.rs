//! Ids per user that increase: each user's orders are numbered 1, 2, 3, whichever machine takes them.
//!
//! A sequence for each user. A number is one request to the store, which counts: no two machines get
//! the same, and a later one is larger.
//!
//! `cargo run -p lockkeeper --example ids_per_user [-- --store URL]`

mod support;

use lockkeeper::Keeper;
use lockkeeper::id::{Generator, Id};
use std::collections::BTreeMap;
use support::Story;

const MACHINES: usize = 3;
const ORDERS: usize = 5;
const USERS: [&str; 2] = ["ada", "grace"];

/// The key of a user's orders; each run of the example has its own.
fn key(user: &str) -> String {
    format!("examples/{}/{user}/orders", std::process::id())
}

async fn take_orders(keeper: Keeper, machine: usize, story: Story) -> Vec<(&'static str, Id)> {
    let mut taken = Vec::new();
    for _ in 0..ORDERS {
        for user in USERS {
            let orders = keeper.ids(&key(user)).sequence().await.expect("the store counts");
            let number = orders.next().await.expect("the store answers");
            story.tell(&format!("machine {machine}: order {number} of {user}"));
            taken.push((user, number));
        }
    }
    taken
}

#[tokio::main]
async fn main() -> lockkeeper::Result<()> {
    let story = Story::begin(&format!("{MACHINES} machines take orders of {} users.", USERS.len()));
    let store = lockkeeper::open(&support::store()).await?;
    let mut machines = Vec::new();
    for machine in 1..=MACHINES {
        let keeper = Keeper::new(store.clone())?;
        machines.push(tokio::spawn(take_orders(keeper, machine, story)));
    }
    let mut of_user: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for machine in machines {
        let taken = machine.await.expect("no machine panicked");
        for user in USERS {
            let own = taken.iter().filter(|(whose, _)| *whose == user).map(|(_, id)| id.get());
            let own: Vec<_> = own.collect();
            assert!(own.is_sorted_by(|one, two| one < two), "they increase: {own:?}");
            of_user.entry(user).or_default().extend(own);
        }
    }
    for (user, mut numbers) in of_user {
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=(MACHINES * ORDERS) as u64).collect::<Vec<_>>());
        story.tell(&format!("{user} has the orders 1 to {}, each once", numbers.len()));
    }
    Ok(())
}
