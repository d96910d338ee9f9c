//! Keeping a claim by its ticket and giving it back, against the two bare requests that do as much: a script
//! that extends a key if it has the right value, and one that deletes it.

use crate::figures::each;
use crate::{middle, printed};
use anyhow::Result;
use lockkeeper::{Keeper, Ticket};
use redis::aio::MultiplexedConnection;
use std::time::Duration;

const ROUNDS: usize = 101;
/// In each round.
const TICKETS: u32 = 100;
const TTL: Duration = Duration::from_secs(600);
const VALUE: &str = "0123456789abcdef0123456789abcdef";
const KEEP: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
    return 0";
const FREE: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
    return 0";

pub(crate) fn by_ticket(url: &str) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let keeper = lockkeeper::connect(url).await?;
        let config =
            redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(2)));
        let client = redis::Client::open(url)?;
        let bare = client.get_multiplexed_async_connection_with_config(&config).await?;
        let (mut mine, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let tickets = handed_out(&keeper).await?;
            let ours = each(TICKETS, used(&keeper, &tickets)).await.as_secs_f64();
            let keys = taken(bare.clone()).await?;
            let floor = each(TICKETS, bare_pairs(bare.clone(), &keys)).await.as_secs_f64();
            ratios.push(floor / ours);
            mine.push(ours);
            theirs.push(floor);
        }
        printed(
            "keep + give_back: of two bare scripts",
            middle(mine),
            middle(theirs),
            middle(ratios),
            0.9,
        );
        Ok(())
    })
}

async fn handed_out(keeper: &Keeper) -> Result<Vec<Ticket>> {
    let mut tickets = Vec::new();
    for number in 0..TICKETS {
        let guard = keeper.lock(format!("ticket/{number}")).ttl(TTL).acquire().await?;
        tickets.push(guard.hand_out().await?);
    }
    Ok(tickets)
}

async fn used(keeper: &Keeper, tickets: &[Ticket]) {
    for ticket in tickets {
        keeper.keep(ticket).await.expect("kept");
        keeper.give_back(ticket).await.expect("given back");
    }
}

async fn taken(mut bare: MultiplexedConnection) -> Result<Vec<String>> {
    let keys: Vec<String> = (0..TICKETS).map(|number| format!("bare/{number}")).collect();
    for key in &keys {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(VALUE).arg("NX").arg("PX").arg(30_000);
        set.query_async::<()>(&mut bare).await?;
    }
    Ok(keys)
}

async fn bare_pairs(mut bare: MultiplexedConnection, keys: &[String]) {
    let (keep, free) = (redis::Script::new(KEEP), redis::Script::new(FREE));
    for key in keys {
        let mut kept = keep.prepare_invoke();
        let kept = kept.key(key).arg(VALUE).arg(600_000).invoke_async::<i64>(&mut bare).await;
        assert_eq!(kept.expect("kept"), 1);
        let mut freed = free.prepare_invoke();
        let freed = freed.key(key).arg(VALUE).invoke_async::<i64>(&mut bare).await;
        assert_eq!(freed.expect("freed"), 1);
    }
}
