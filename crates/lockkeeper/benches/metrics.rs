//! What measuring costs: acquire and release of a `memory:` lock, with metrics and without, in turn.
//!
//! `cargo bench -p lockkeeper --features metrics --bench metrics`
//!
//! The recorder is a real one, of the kind that programs use, with as many buckets as they have. "Without"
//! is a keeper that is told to measure nothing.

#![allow(missing_docs, reason = "a program, not an interface")]

#[path = "common/mod.rs"]
mod common;

use common::{Goal, each, median, report};
use lockkeeper::Keeper;
use lockkeeper::metrics::Metrics;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long one of many took.
type Way<'a> = &'a dyn Fn(&Keeper) -> Duration;

const ROUNDS: usize = 301;
const TURNS: u32 = 1000;
const BUCKETS: &[f64] = &[0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0];

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let recorder = PrometheusBuilder::new().set_buckets(BUCKETS).expect("buckets").build_recorder();
    let handle = recorder.handle();
    let metrics = Metrics::new().prefix("cron/").prefix("orders/").recorder(Arc::new(recorder));
    let keeper = |metrics| {
        let keeper = runtime.block_on(lockkeeper::connect("memory:")).expect("memory:");
        keeper.with_metrics(metrics).expect("measured")
    };
    let (on, off) = (keeper(metrics), keeper(Metrics::off()));
    let spawned = |keeper: &Keeper| {
        let task = runtime.spawn(pairs(keeper.clone()));
        each(TURNS, || runtime.block_on(task).expect("the task"))
    };
    let blocked = |keeper: &Keeper| each(TURNS, || runtime.block_on(pairs(keeper.clone())));
    println!("{:<58} {:>9} {:>9}   ratio", "", "on", "off");
    let ways: [(&str, Way<'_>); 2] =
        [("in a spawned task", &spawned), ("on block_on's thread", &blocked)];
    for (way, turn) in ways {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // Each goes first as often as the other.
            if round % 2 == 0 {
                with.push(turn(&on));
                without.push(turn(&off));
            } else {
                without.push(turn(&off));
                with.push(turn(&on));
            }
            // As a program does by and by, or the samples would pile up.
            handle.run_upkeep();
        }
        let what = format!("acquire + release with metrics, {way}");
        report(&what, median(with), median(without), Goal::SpeedAtLeast(0.9));
    }
    let text = handle.render();
    let count = text.lines().find(|line| {
        line.starts_with("lockkeeper_acquires_total") && line.contains("outcome=\"granted\"")
    });
    println!("{}", count.expect("it was measured"));
}

async fn pairs(keeper: Keeper) {
    let lock = keeper.lock("orders/42");
    for _ in 0..TURNS {
        lock.acquire().await.expect("a guard").release().await.expect("released");
    }
}
