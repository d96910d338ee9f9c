//! Snowflakes with the cached clock beside other libraries, in bursts that each layout has room for.
//!
//! All are on 41 bits of time, 10 of worker and 12 of sequence, except sonyflake, whose layout is fixed:
//! 256 ids in ten milliseconds.

use crate::clocked::{snowflake, take};
use crate::rounds::{Bursts, Goal, Work, compare};
use anyhow::Result;
use ferroid::generator::{AtomicSnowflakeGenerator, Poll};
use ferroid::id::SnowflakeTwitterId;
use ferroid::time::{MonotonicClock, TWITTER_EPOCH};
use lockkeeper::id::Layout;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;
use tokio::runtime::Runtime;

ferroid::define_snowflake_id!(
    /// As wide as 41/1/21.
    Wide, u64, reserved: 1, timestamp: 41, machine_id: 1, sequence: 21
);

fn each<T>(count: u64, mut next: impl FnMut() -> T) -> u64 {
    for _ in 0..count {
        black_box(next());
    }
    count
}

/// Ids of ferroid. Where another thread was faster, or saw the next millisecond before, it says so and is
/// asked again at once. Where it has to wait for the clock, the burst ends, and does not count.
fn take_ferroid<T: ferroid::id::Id>(count: u64, poll: impl Fn() -> Poll<T>) -> u64 {
    const SHORT: u32 = 1_000;
    for got in 0..count {
        let mut tries = 0;
        while !matches!(poll(), Poll::Ready { id } if { black_box(id); true }) {
            tries += 1;
            if tries == SHORT {
                return got;
            }
        }
    }
    count
}

pub(crate) fn run(runtime: &Runtime) -> Result<()> {
    let ours = snowflake(runtime, Layout::default(), true)?;
    let ours = |count: u64| take(&ours, count);
    let clock = MonotonicClock::<1>::with_epoch(TWITTER_EPOCH);
    let ferroid = AtomicSnowflakeGenerator::<SnowflakeTwitterId, _>::new(1, clock);
    let plain = Mutex::new(snowflake::SnowflakeIdGenerator::new(1, 1));
    let snowflaked = snowflaked::sync::Generator::new(1);
    let sony = sonyflake::Sonyflake::builder().machine_id(&|| Ok(1)).finalize()?;
    let options = idgenerator::IdGeneratorOptions::new();
    idgenerator::IdInstance::init(options.worker_id(1).worker_id_bit_len(10).seq_bit_len(12))?;

    let by_ferroid = |count| take_ferroid(count, || ferroid.poll_id());
    let by_plain = |count| {
        each(count, || {
            plain.lock().unwrap_or_else(std::sync::PoisonError::into_inner).real_time_generate()
        })
    };
    let by_snowflaked = |count| each(count, || snowflaked.generate::<i64>());
    let by_sony = |count| each(count, || sony.next_id().map(|id| id.to_u64()));
    let by_idgenerator = |count| each(count, idgenerator::IdInstance::next_id);
    let rivals: [(&str, Work<'_>, u64, u64); 5] = [
        ("ferroid", &by_ferroid, 1_000, 2),
        ("rs-snowflake", &by_plain, 1_000, 2),
        ("snowflaked", &by_snowflaked, 1_000, 2),
        ("sonyflake", &by_sony, 100, 6),
        ("idgenerator", &by_idgenerator, 1_000, 2),
    ];
    for threads in [1, 2] {
        for (name, work, ids, pause) in rivals {
            let bursts = Bursts { threads, ids, pause: Duration::from_millis(pause) };
            let what = format!("snowflake, cached clock / {name}, bursts, {threads} threads");
            compare(&what, bursts, &ours, work, Goal::Below(1.0));
        }
    }
    wide(runtime)
}

/// Without pauses, on a layout without a limit.
fn wide(runtime: &Runtime) -> Result<()> {
    let ours = snowflake(runtime, Layout::new(41, 1, 21)?, true)?;
    let clock = MonotonicClock::<1>::with_epoch(TWITTER_EPOCH);
    let ferroid = AtomicSnowflakeGenerator::<Wide, _>::new(1, clock);
    for threads in [1, 2] {
        let bursts = Bursts { threads, ids: 20_000, pause: Duration::from_micros(50) };
        let what = format!("snowflake 41/1/21, cached clock / ferroid, {threads} threads");
        let by_ferroid = |count| take_ferroid(count, || ferroid.poll_id());
        compare(&what, bursts, &|count| take(&ours, count), &by_ferroid, Goal::Below(1.0));
    }
    Ok(())
}
