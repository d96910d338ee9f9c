//! Turns at a lock, and the figures that are made of them. They are the same for everyone: a program
//! only writes down when it asked, had the lock, gave it back and was done.

use anyhow::{Context, Result, ensure};

/// One turn of one task, in microseconds of a clock that all programs of a row share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Before it asked.
    pub(crate) asked: u64,
    /// When it had the lock.
    pub(crate) held: u64,
    /// Before it gave it back.
    pub(crate) releasing: u64,
    /// After that.
    pub(crate) released: u64,
}

/// The turns in an answer of a program: `turns`, then four numbers with commas between for each.
pub(crate) fn read(said: &str) -> Result<Vec<Turn>> {
    let words = said.strip_prefix("turns").with_context(|| {
        let shown: String = said.chars().take(80).collect();
        format!("it says {shown:?} where it should tell its turns")
    })?;
    words.split_whitespace().map(turn).collect()
}

fn turn(word: &str) -> Result<Turn> {
    let mut numbers = word.split(',').map(str::parse::<u64>);
    let mut number = || numbers.next().context("four numbers")?.context("a number");
    let turn =
        Turn { asked: number()?, held: number()?, releasing: number()?, released: number()? };
    let in_order = turn.asked <= turn.held && turn.held <= turn.releasing;
    ensure!(in_order && turn.releasing <= turn.released, "{word:?} is no turn");
    Ok(turn)
}

/// What `figures` are shorter than, so many of a hundred.
fn percentile(mut figures: Vec<u64>, percent: usize) -> Result<f64> {
    figures.sort_unstable();
    let at = (figures.len() * percent / 100).min(figures.len().saturating_sub(1));
    Ok(seconds(*figures.get(at).context("nobody had a turn")?))
}

/// Acquire and release: the middle one, and what 99 of 100 are shorter than.
pub(crate) fn cycle(turns: &[Turn], percent: usize) -> Result<f64> {
    // What 99 of 100 are shorter than is a matter of chance with fewer.
    let least = if percent > 90 { 100 } else { 10 };
    ensure!(turns.len() >= least, "only {} turns in the time", turns.len());
    percentile(turns.iter().map(|turn| turn.released - turn.asked).collect(), percent)
}

/// From the call that gives the lock back until the next one has it, where that one waited.
pub(crate) fn hand_over(turns: &[Turn]) -> Result<f64> {
    let mut turns = turns.to_vec();
    turns.sort_by_key(|turn| turn.held);
    let waited = turns.windows(2).filter(|pair| pair[1].asked < pair[0].releasing);
    let gaps: Vec<u64> =
        waited.map(|pair| pair[1].held.saturating_sub(pair[0].releasing)).collect();
    ensure!(gaps.len() >= 10, "only {} hand-overs in the time", gaps.len());
    percentile(gaps, 50)
}

/// The most that others were served while one waited, and the longest wait, each of the mean.
pub(crate) fn fairness(turns: &[Turn]) -> Result<(f64, f64)> {
    // Those who were there before the first grant waited for the line to form, too.
    let first = turns.iter().map(|turn| turn.held).min().unwrap_or(0);
    let turns: Vec<&Turn> = turns.iter().filter(|turn| turn.asked > first).collect();
    ensure!(turns.len() >= 50, "only {} turns in the time", turns.len());
    let mut held: Vec<u64> = turns.iter().map(|turn| turn.held).collect();
    held.sort_unstable();
    let before = |moment: u64| held.partition_point(|held| *held < moment);
    let others = |turn: &&Turn| (before(turn.held) - before(turn.asked)) as u64;
    let waits = |turn: &&Turn| turn.held - turn.asked;
    Ok((spread(turns.iter().map(others))?, spread(turns.iter().map(waits))?))
}

/// The largest, of the mean.
fn spread(figures: impl Iterator<Item = u64>) -> Result<f64> {
    let (mut most, mut sum, mut count) = (0, 0, 0_u32);
    for figure in figures {
        (most, sum, count) = (most.max(figure), sum + figure, count + 1);
    }
    ensure!(sum > 0, "nobody waited");
    Ok(seconds(most) * f64::from(count) / seconds(sum))
}

fn seconds(microseconds: u64) -> f64 {
    std::time::Duration::from_micros(microseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three tasks in turn, each served for 10 µs, with 5 µs in between.
    fn line() -> Vec<Turn> {
        let turn = |number: u64| {
            let held = 100 + number * 15;
            let asked = held.saturating_sub(40);
            Turn { asked, held, releasing: held + 10, released: held + 12 }
        };
        (0..80).map(turn).collect()
    }

    #[test]
    fn an_answer_is_read_and_nonsense_is_not() {
        let turns = read("turns 1,2,3,4 5,5,6,9").expect("turns");
        assert_eq!(turns[1], Turn { asked: 5, held: 5, releasing: 6, released: 9 });
        assert!(read("turns").expect("none").is_empty());
        for wrong in ["took 3", "turns 1,2,3", "turns 4,3,2,1", "turns 1,2,3,x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_are_those_of_the_turns() {
        let turns = line();
        assert!((cycle(&turns, 50).expect("a figure") - 52e-6).abs() < 1e-9);
        assert!((hand_over(&turns).expect("a figure") - 5e-6).abs() < 1e-9);
        let (in_turns, in_time) = fairness(&turns).expect("figures");
        assert!((1.0..1.1).contains(&in_turns), "{in_turns}");
        assert!((1.0..1.1).contains(&in_time), "{in_time}");
    }

    #[test]
    fn one_who_is_passed_over_is_seen() {
        let mut turns = line();
        turns[70].asked = turns[1].held;
        let (in_turns, in_time) = fairness(&turns).expect("figures");
        assert!(in_turns > 10.0, "{in_turns}");
        assert!(in_time > 10.0, "{in_time}");
    }

    #[test]
    fn those_who_formed_the_line_do_not_count() {
        let mut turns = line();
        turns[20].asked = 1;
        let (in_turns, in_time) = fairness(&turns).expect("figures");
        assert!(in_turns < 1.1, "{in_turns}");
        assert!(in_time < 1.1, "{in_time}");
    }

    #[test]
    fn too_little_is_no_figure() {
        assert!(cycle(&line(), 99).is_err());
        assert!(hand_over(&line()[..5]).is_err());
        assert!(fairness(&line()[..20]).is_err());
    }
}
