//! "Which should I take": a paragraph that follows from the figures.

use super::super::cell::Cell;
use super::super::column::{CAPABILITIES, Promise};
use super::super::measure::faults::FAULTS;
use super::super::stored::{Row, StoredRun};
use super::rank::{self, Family, Order, Ranked};
use super::{format, title};

/// The paragraph, as sentences.
pub(super) fn advice(run: &StoredRun) -> String {
    let fast: Vec<Ranked<'_>> =
        rank::ranked(run, Order::Performance).into_iter().filter(|it| it.row.ours).collect();
    let mut sentences = vec![sound(run, &fast)];
    sentences.extend(faster(&fast));
    sentences.extend(Family::ALL.iter().filter_map(|family| kept(*family, &fast)));
    sentences.extend(simple(run));
    sentences.extend(nearby(run));
    sentences.extend(waiting(run));
    sentences.join(" ")
}

/// Whether nothing was broken by what nobody can prevent, and nothing is left to luck: a short run may
/// miss what a server that forgets its locks lets happen, so that those that promise nothing over a
/// restart are none of them.
fn is_sound(row: &Row) -> bool {
    let held = |cell: &Cell| matches!(cell, Cell::Held(_));
    let ordinary = FAULTS.iter().filter(|fault| !fault.of_server);
    let mut cells =
        ordinary.flat_map(|fault| Promise::BOTH.map(|promise| row.cell(&promise.key(fault.key))));
    let applies = |cell: &Cell| !matches!(cell, Cell::NotApplicable(why) if !why.contains("token"));
    is_durable(row)
        && cells.clone().any(|cell| held(&cell))
        && cells.all(|it| held(&it) || !applies(&it))
}

/// Whether nothing was broken either when the server lost its data or the time.
fn is_sound_throughout(row: &Row) -> bool {
    is_sound(row) && rank::tally(row)[0] == 0
}

fn is_durable(row: &Row) -> bool {
    can(row, "durable")
}

fn can(row: &Row, ability: &str) -> bool {
    matches!(row.cell(CAPABILITIES), Cell::Words(words) if words.iter().any(|it| it == ability))
}

/// The one to take: of those that are sound, the fastest that serves in the order of asking. A recipe that
/// passes a name on within a process for as long as it may is faster, because others wait meanwhile.
fn best<'a>(fast: impl Iterator<Item = &'a Ranked<'a>> + Clone) -> Option<&'a Ranked<'a>> {
    let mut sound = fast.filter(|it| is_sound(it.row));
    sound.clone().find(|it| can(it.row, "fair")).or_else(|| sound.next())
}

/// The row, and of which faults it is not known what they do to it.
fn with_doubts(row: &Row) -> String {
    let doubts = FAULTS.iter().filter(|fault| {
        Promise::BOTH.iter().any(|it| matches!(row.cell(&it.key(fault.key)), Cell::Unknown(_)))
    });
    let doubts: Vec<String> = doubts.map(|fault| fault.title.replace(", ", " ")).collect();
    if doubts.is_empty() {
        return title(row);
    }
    format!("{} (unknown: {})", title(row), listed(&doubts))
}

/// Names with commas and an "and".
fn listed(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Those that held under what nobody can prevent, the fastest of them, and those that held under more.
fn sound(run: &StoredRun, fast: &[Ranked<'_>]) -> String {
    let ours = || run.rows.iter().filter(|row| row.ours && super::reaches_far(row));
    let (sound, all) = (ours().filter(|row| is_sound(row)).count(), ours().count());
    let Some(best) = best(fast.iter()) else {
        return format!(
            "None of the {all} recipes for several machines is known to keep claims over a restart and to \
             break nothing when clients are killed, stopped and cut off: choose by what was broken, below."
        );
    };
    let names: Vec<String> = ours().filter(|row| is_sound(row)).map(title).collect();
    let mut text = format!(
        "Of {all} recipes for several machines, {sound} held every promise when clients were killed, stopped \
         and cut off and when the server was restarted with its data: {}. The fastest of them{} is **{}** ({} \
         the best time of all, as a mean): take it if you may choose the server.",
        listed(&names),
        if can(best.row, "fair") { " that serves in the order of asking" } else { "" },
        title(best.row),
        best.why
    );
    if !is_sound_throughout(best.row) && rank::tally(best.row)[0] > 0 {
        text.push_str(&format!(
            " Take care of that server, though: when it lost its data or the time, {} {}.",
            title(best.row),
            weakness(best.row)
        ));
    }
    let throughout: Vec<String> =
        ours().filter(|row| is_sound_throughout(row)).map(with_doubts).collect();
    if !throughout.is_empty() {
        text.push_str(&format!(
            " Nothing was found broken even then with {}.",
            listed(&throughout)
        ));
    }
    text
}

/// The fastest of those that are sound and of those that are not, where it is not the one to take.
fn faster(fast: &[Ranked<'_>]) -> Vec<String> {
    let best = best(fast.iter()).map(|it| it.row.key());
    let of_kind = |sound| fast.iter().find(|it| is_sound(it.row) == sound);
    let before_best = |it: &&Ranked<'_>| {
        let place = |key| fast.iter().position(|other| other.row.key() == key);
        best.is_none_or(|best| place(it.row.key()) < place(best))
    };
    let faster = [of_kind(true), of_kind(false)].into_iter().flatten().filter(before_best);
    let word = if best.is_some() { "faster" } else { "the fastest" };
    faster
        .map(|it| {
            format!("**{}** is {word} ({}), and {}.", title(it.row), it.why, drawback(it.row))
        })
        .collect()
}

/// Why one may not want the fastest.
fn drawback(row: &Row) -> String {
    if !is_sound(row) {
        return weakness(row);
    }
    let longest = row
        .figure("fair-turns")
        .map(|it| format!(": one waited for {} as many turns as the mean", format::times(it)));
    format!("serves in no order{}", longest.unwrap_or_default())
}

/// What was broken, in words.
fn weakness(row: &Row) -> String {
    let under = |promise: Promise| -> Vec<String> {
        let broken = FAULTS
            .iter()
            .filter(|fault| matches!(row.cell(&promise.key(fault.key)), Cell::Broken(_)));
        broken.map(|fault| fault.title.replace(", ", " ")).collect()
    };
    let (claims, effects) = (under(Promise::Claims), under(Promise::Effects));
    let mut parts = Vec::new();
    if !claims.is_empty() {
        parts.push(format!("let two hold at once under {}", listed(&claims)));
    }
    if !effects.is_empty() {
        parts.push(format!(
            "gave tokens that do not grow, or let a stale write through, under {}",
            listed(&effects)
        ));
    }
    let tokenless = rank::verdicts(row).any(|(_, promise, cell)| {
        promise == Promise::Effects
            && matches!(cell, Cell::NotApplicable(why) if why.contains("token"))
    });
    if tokenless {
        parts.push("gives no token that would stop a stale write".to_owned());
    }
    if !is_durable(row) {
        parts.push("promises nothing over a restart".to_owned());
    }
    if parts.is_empty() { "was not judged".to_owned() } else { listed(&parts) }
}

/// What to take where the server is given.
fn kept(family: Family, fast: &[Ranked<'_>]) -> Option<String> {
    let mut of = fast.iter().filter(|it| Family::of(it.row) == family);
    let best = best(of.clone()).or_else(|| of.next())?;
    let but =
        if is_sound(best.row) { String::new() } else { format!(", which {}", weakness(best.row)) };
    Some(format!(
        "Where a {} is there already: **{}** ({}){but}.",
        family.word(),
        title(best.row),
        best.why
    ))
}

fn simple(run: &StoredRun) -> Option<String> {
    let ranked = rank::ranked(run, Order::Simplicity);
    let first = ranked.iter().find(|it| it.row.ours)?;
    Some(format!("The least to read is **{}** ({}).", title(first.row), first.why))
}

/// Stores that reach no further than a machine.
fn nearby(run: &StoredRun) -> Option<String> {
    let fastest = run
        .rows
        .iter()
        .filter(|row| row.ours && row.reach == "machine" && is_sound(row))
        .filter_map(|row| Some((row, row.figure("alone-p50")?)))
        .min_by(|one, other| one.1.total_cmp(&other.1))?;
    let far = super::base(run, super::super::column::of("alone-p50")?)?;
    Some(format!(
        "If all processes are on one machine, **{}** needs no server, and an acquire and release takes {} \
         as long as with the fastest one.",
        title(fastest.0),
        format::times(fastest.1 / far)
    ))
}

/// The cheapest to wait for.
fn waiting(run: &StoredRun) -> Option<String> {
    let rate = |row: &Row| row.figure("requests-100");
    let far = run.rows.iter().filter(|row| super::reaches_far(row) && row.ours);
    let mut rates: Vec<(&Row, f64)> = far.filter_map(|row| Some((row, rate(row)?))).collect();
    rates.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (first, last) = (rates.first()?, rates.last()?);
    Some(format!(
        "A hundred waiters ask the server {} times a second with {}, and {} times with {}.",
        format::digits(first.1),
        title(first.0),
        format::digits(last.1),
        title(last.0)
    ))
}
