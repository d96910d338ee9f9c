//! An order number in which a person reads the day, and a digit that notices when it is mistyped.
//!
//! `ORD20261115073000000017` is the first order of 07:30:00 on the 15th of November 2026, by the clock of
//! the shop, which is eight hours ahead of UTC.
//!
//! `cargo run -p lockkeeper --example order_numbers [-- --store URL]`

mod support;

use lockkeeper::id::{DateFormat, Digits, Generator, Kind, utc};
use std::time::SystemTime;
use support::Story;

#[tokio::main]
async fn main() -> lockkeeper::Result<()> {
    let story = Story::begin("A shop numbers its orders.");
    let keeper = lockkeeper::connect(&support::store()).await?;
    let format = DateFormat::new(Digits::Second19).offset("+08:00")?.prefix("ORD")?.check_digit();
    let orders = keeper.ids("examples/order-numbers").dated(format.clone()).await?;
    let mut last = None;
    for _ in 0..3 {
        let id = orders.next().await?;
        assert!(last < Some(id), "they increase");
        last = Some(id);
        story.tell(&format!("an order: {}", format.text(id)));
    }
    let number = format.text(last.expect("there were orders"));

    let kind = Kind::Dated(format.clone());
    let told = kind.inspect(&number)?;
    let time = told.time.expect("it tells the time");
    story.tell(&format!("{number} was taken at {}", utc(time)));
    let ago = SystemTime::now().duration_since(time).unwrap_or_default();
    assert!(ago.as_secs() < 3600, "{ago:?}");

    let mistyped = number.replacen("ORD20", "ORD02", 1);
    let refusal = format.parse(&mistyped).expect_err("two digits changed places");
    story.tell(&format!("{mistyped} is refused: {refusal}"));

    let (first, last) = kind.range("2026-11-15")?;
    story.tell(&format!("the orders of a day: id between {first} and {last}"));
    Ok(())
}
