//! Tells whom we wait for.

use super::obstacle::Obstacle;
use super::terms::Terms;
use crate::output;
use crate::text::span;
use lockkeeper::{Keeper, Owner};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long we wait in silence, and how often we poll after that.
const GLANCE: Duration = Duration::from_secs(1);
/// The interval grows by a second for every this many places in the queue, up to
/// `LONGEST_GLANCE`: each poll reads the whole queue, and in a long queue every waiter polls.
const PLACES_PER_GLANCE: u32 = 16;
const LONGEST_GLANCE: Duration = Duration::from_secs(10);
/// When we say the same again, after we said it; the last one stays.
const REMINDERS: [Duration; 3] =
    [Duration::from_secs(15), Duration::from_secs(60), Duration::from_secs(300)];

/// Polls the queue and prints who is ahead; never returns.
pub(super) async fn tell_whom_we_wait_for<T>(keeper: &Keeper, terms: &Terms, owner: &Owner) -> T {
    if terms.manner.quiet {
        return std::future::pending().await;
    }
    let began = Instant::now();
    let mut last: Option<(Obstacle, Instant)> = None;
    let mut repeated = 0;
    loop {
        let place = last.as_ref().and_then(|(obstacle, _)| obstacle.place).unwrap_or(1);
        let glances = 1 + u32::try_from(place).unwrap_or(u32::MAX) / PLACES_PER_GLANCE;
        sleep((GLANCE * glances).min(LONGEST_GLANCE)).await;
        let Some(obstacle) = Obstacle::find(keeper, terms, owner).await else { continue };
        if let Some((before, said)) = &last {
            let is_new = !obstacle.is_much_like(before);
            if !is_new && said.elapsed() < reminder(repeated) {
                continue;
            }
            repeated = if is_new { 0 } else { repeated + 1 };
        }
        // Awaited, so that lines do not pile up when stderr is stuck.
        let _ = output::tell_aside(line(&obstacle, began.elapsed(), terms.wait)).await;
        last = Some((obstacle, Instant::now()));
    }
}

/// How long after it was `repeated` so many times.
fn reminder(repeated: usize) -> Duration {
    REMINDERS.get(repeated).or(REMINDERS.last()).copied().unwrap_or_default()
}

/// `waiting for "x": held by anna@web-1 pid 4242 'backup.sh' for 42s; waited 10s of 5m, 4m 50s left;
/// place 2 in the queue`.
fn line(obstacle: &Obstacle, waited: Duration, limit: Option<Duration>) -> String {
    let mut line = format!("waiting for {:?}", obstacle.name);
    if let Some(held) = &obstacle.held {
        line += &format!(": held by {}", held.line);
    }
    if let Some(disagreement) = &obstacle.disagreement {
        line += &format!("; {disagreement}");
    }
    line += &format!("; waited {}", span(waited));
    if let Some(left) = limit.map(|limit| limit.saturating_sub(waited)) {
        line += &format!(", {} left", span(left));
    }
    if let Some(place) = obstacle.place {
        line += &format!("; place {place} in the queue");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reminders_get_rarer_and_do_not_end() {
        let seconds: Vec<_> = (0..5).map(|repeated| reminder(repeated).as_secs()).collect();
        assert_eq!(seconds, [15, 60, 300, 300, 300]);
    }

    #[test]
    fn a_line_says_how_long_and_how_much_is_left() {
        let obstacle = Obstacle {
            name: "x".into(),
            held: None,
            place: Some(2),
            disagreement: Some("they differ".into()),
        };
        let seconds = Duration::from_secs;
        assert_eq!(
            line(&obstacle, seconds(75), Some(seconds(300))),
            "waiting for \"x\"; they differ; waited 1m 15s, 3m 45s left; place 2 in the queue"
        );
        let obstacle = Obstacle { place: None, disagreement: None, ..obstacle };
        assert_eq!(line(&obstacle, seconds(1), None), "waiting for \"x\"; waited 1s");
    }
}
