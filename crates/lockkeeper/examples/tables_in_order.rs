//! Several tables locked at once, always in one order, so that no two callers deadlock.
//!
//! One clerk moves goods from stock to orders, the other from orders to stock. Each names its
//! two tables in its own order; `multi` takes them in one. Were they taken as named, the two
//! would soon wait for each other for ever.
//!
//! `cargo run -p lockkeeper --example tables_in_order [-- --store URL]`

mod support;

use lockkeeper::Keeper;
use lockkeeper::fence::Register;
use std::sync::Arc;
use std::time::Duration;
use support::Story;

const MOVES: usize = 10;

/// A table that refuses a holder of the past.
type Table = Register<i64>;

struct Clerk {
    name: &'static str,
    keeper: Keeper,
    from: (&'static str, Arc<Table>),
    to: (&'static str, Arc<Table>),
}

impl Clerk {
    async fn work(self, story: Story) -> lockkeeper::Result<()> {
        let names = [self.from.0, self.to.0];
        for turn in 1..=MOVES {
            let both = self.keeper.multi(names).note(self.name).acquire().await?;
            for ((name, table), change) in [(&self.from, -1), (&self.to, 1)] {
                let token = both.token(name).expect("this store has tokens");
                table.update(token, |count| *count += change).expect("the holder is not stale");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            both.release().await?;
            story.tell(&format!("{} moves {} -> {}, no. {turn}", self.name, names[0], names[1]));
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> lockkeeper::Result<()> {
    let story = Story::begin("Two clerks lock the same two tables, named in opposite orders.");
    let store = lockkeeper::open(&support::store()).await?;
    let stock = ("examples/tables/stock", Arc::new(Table::new(100)));
    let orders = ("examples/tables/orders", Arc::new(Table::new(100)));
    let clerk = |name, from: &(_, Arc<Table>), to: &(_, Arc<Table>)| {
        let keeper = Keeper::new(store.clone())?;
        Ok::<_, lockkeeper::Error>(Clerk { name, keeper, from: from.clone(), to: to.clone() })
    };
    let outgoing = tokio::spawn(clerk("Olga", &stock, &orders)?.work(story));
    let incoming = tokio::spawn(clerk("Ivan", &orders, &stock)?.work(story));
    outgoing.await.expect("no panic")?;
    incoming.await.expect("no panic")?;
    let (stock, orders) = (stock.1.read(), orders.1.read());
    assert_eq!((stock, orders), (100, 100));
    story.tell(&format!("{} moves each way: stock {stock}, orders {orders}", MOVES));
    Ok(())
}
