//! The page for those who read the repository.

use super::super::column::{CAPABILITIES, COLUMNS, Group, Promise, Unit};
use super::super::measure::faults::FAULTS;
use super::super::stored::{Comparison, Row, StoredRun};
use super::rank::{self, Order};
use super::{advice, base, columns, format, reasons, shown, title};
use std::fmt::Write;

/// `docs/comparison.md`.
#[must_use]
pub fn markdown(comparison: &Comparison) -> String {
    let run = &comparison.first;
    let mut page = String::from("# Comparison\n\n");
    page += &intro(run);
    page += &format!("\n## Which should I take\n\n{}\n", advice::advice(run));
    page += &orders(run);
    page += "\n## Performance\n\nAs multiples of the fastest that reaches several machines; smaller is better.\n\n";
    page += &figures(run, Group::Performance);
    page += "\n## Waiting\n\n";
    page += &figures(run, Group::Waiting);
    page += "\n## Reliability\n\nClaims / effects: *held* or *broken* under this fault. Ours in a short run with many of it, of which every moment is judged; other libraries once, at a known step: when another one has the lock, does the first, asked, still say that it holds it? *Broken* is certain; *held* says only that seconds of faults found nothing.\n\n";
    page += &verdicts(run);
    page.push('\n');
    page += &figures(run, Group::Reliability);
    page += "\n## Simplicity\n\n";
    page += &figures(run, Group::Simplicity);
    page += "\n## What each can do\n\n";
    page += &abilities(run);
    page += &absolute(run);
    page += &again(comparison);
    page += &notes(run);
    page
}

/// What every page begins with; also used by the HTML page.
pub(super) fn about(run: &StoredRun) -> String {
    let (ours, others) = (
        run.rows.iter().filter(|row| row.ours).count(),
        run.rows.iter().filter(|row| !row.ours).count(),
    );
    let quick =
        if run.quick { " **A short run, to try it out: its figures mean little.**" } else { "" };
    format!(
        "{ours} recipes of ours and {others} of other libraries, one after another on the same servers, by \
         the same measures. Servers write what they answer to the disk first, where they can (Redis with \
         `appendfsync always`, unless the row says *in memory*).{quick}"
    )
}

fn intro(run: &StoredRun) -> String {
    format!(
        "{} Made by `cargo xtask compare` of `comparison.json`; nothing here is typed in. *unknown*: it could \
         not be measured; n/a: there is no such thing; the reasons are at the end. With charts: \
         [comparison.html](comparison.html).\n",
        about(run)
    )
}

fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head);
    text += &format!("|{}\n", "---|".repeat(head.len()));
    rows.for_each(|row| text += &line(&row));
    text
}

fn head(first: &str, rest: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(rest).collect()
}

/// Ours in bold.
fn name(row: &Row) -> String {
    if row.ours { format!("**{}**", title(row)) } else { title(row) }
}

fn figures(run: &StoredRun, group: Group) -> String {
    let heads = head("", columns(group).map(|column| column.title.to_owned()));
    let rows = run.rows.iter().map(|row| {
        let cells =
            columns(group).map(|column| shown(&row.cell(column.key), column, base(run, column)));
        head(&name(row), cells)
    });
    table(&heads, rows)
}

fn verdicts(run: &StoredRun) -> String {
    let heads = head("", FAULTS.iter().map(|fault| fault.title.to_owned()));
    let rows = run.rows.iter().map(|row| {
        let cells = FAULTS.iter().map(|fault| {
            let [claims, effects] =
                Promise::BOTH.map(|promise| format::word(&row.cell(&promise.key(fault.key))));
            if claims == effects { claims } else { format!("{claims} / {effects}") }
        });
        head(&name(row), cells)
    });
    table(&heads, rows)
}

fn abilities(run: &StoredRun) -> String {
    let heads = head("", ["version", "reach", "can"].into_iter().map(str::to_owned));
    let rows = run.rows.iter().map(|row| {
        let words = format::word(&row.cell(CAPABILITIES));
        head(&name(row), [row.version.clone(), row.reach.clone(), words].into_iter())
    });
    table(&heads, rows)
}

fn orders(run: &StoredRun) -> String {
    let mut text =
        String::from("\n## In order\n\nStores that reach several machines, the best first.\n\n");
    let lists = Order::ALL.map(|order| rank::ranked(run, order));
    let heads = head("", Order::ALL.iter().map(|order| order.title().to_owned()));
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let rows = (0..longest).map(|at| {
        let place = |list: &Vec<rank::Ranked<'_>>| {
            list.get(at).map_or(String::new(), |it| format!("{}: {}", name(it.row), it.why))
        };
        head(&format!("{}", at + 1), lists.iter().map(place))
    });
    text += &table(&heads, rows);
    text.push('\n');
    for order in Order::ALL {
        // Writing to a text does not fail.
        let _ = writeln!(text, "- {}: {}.", order.title(), order.rule());
    }
    text.push('\n');
    for line in common(run) {
        let _ = writeln!(text, "- {line}");
    }
    text
}

/// What is often written, and what was measured.
pub(super) fn common(run: &StoredRun) -> Vec<String> {
    let line = |order: Order| {
        let best = rank::families(run, order);
        if best.len() < 2 {
            return None;
        }
        let said = order.said().map(rank::Family::word).join(", ");
        let measured: Vec<String> = best
            .iter()
            .map(|(family, row, why)| format!("{} ({row}: {why})", family.word()))
            .collect();
        let there =
            order.said().into_iter().filter(|it| best.iter().any(|(family, ..)| family == it));
        let agrees = there.eq(best.iter().map(|(family, ..)| *family));
        let verdict = if agrees { "as is said" } else { "otherwise than is said" };
        Some(format!(
            "By {} it is often said: {said}. Measured, the best of each: {}; {verdict}.",
            order.title(),
            measured.join(", ")
        ))
    };
    Order::ALL.into_iter().filter_map(line).collect()
}

/// The head over how long a small write took just before a row was measured.
pub(super) const FLUSH: &str = "4 KB to the disk, just before";

/// The machine and the date, in a sentence; also used by the HTML page.
pub(super) fn machine(run: &StoredRun) -> String {
    let machine = &run.machine;
    let servers: Vec<String> =
        machine.servers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let flush = machine.flush.map_or_else(|| "an unknown time".to_owned(), format::time);
    format!(
        "{}: {} cores ({}), {} GiB, Linux {}; load {} at the beginning; four kilobytes reach the disk in \
         {flush}. {}.",
        run.date,
        machine.cores,
        machine.processor,
        machine.memory_gib,
        machine.kernel,
        format::digits(machine.load),
        servers.join(", ")
    )
}

fn absolute(run: &StoredRun) -> String {
    let times = || COLUMNS.iter().filter(|column| matches!(column.unit, Unit::Time | Unit::OfTtl));
    let heads = head("", times().map(|column| column.title).chain([FLUSH]).map(str::to_owned));
    let rows = run.rows.iter().map(|row| {
        let flush = row.flush.map_or_else(|| "*unknown*".to_owned(), format::time);
        let cells = times().map(|column| match row.figure(column.key) {
            Some(figure) => format::time(figure),
            None => format::word(&row.cell(column.key)),
        });
        head(&name(row), cells.chain([flush]))
    });
    format!("\n## Times on this machine\n\n{}\n\n{}", machine(run), table(&heads, rows))
}

/// How many of the figures of both runs are how close, in a sentence.
pub(super) fn closeness(comparison: &Comparison) -> Option<String> {
    let again = comparison.again.as_ref()?;
    let mut ratios: Vec<f64> = Vec::new();
    for row in &comparison.first.rows {
        let Some(other) = again.row(row.key()) else { continue };
        for column in COLUMNS {
            let pair = row.figure(column.key).zip(other.figure(column.key));
            ratios.extend(
                pair.filter(|(one, two)| *one > 0.0 && *two > 0.0).map(|(one, two)| two / one),
            );
        }
    }
    let within = |factor: f64| {
        let close = ratios.iter().filter(|ratio| (1.0 / factor..=factor).contains(*ratio)).count();
        100 * close / ratios.len().max(1)
    };
    Some(format!(
        "A second run ({}): of {} figures {} % are within a factor of 1.25 of the first, {} % within 2.",
        machine(again),
        ratios.len(),
        within(1.25),
        within(2.0)
    ))
}

/// The second run's figure, of the first's.
pub(super) fn ratio(row: &Row, again: &StoredRun, key: &str) -> String {
    let other = again.row(row.key());
    match (row.cell(key), other.map(|other| other.cell(key))) {
        (one, Some(two)) => match (one.figure(), two.figure()) {
            (Some(one), Some(two)) if one > 0.0 => format::digits(two / one),
            (Some(_), Some(two)) => {
                if two > 0.0 {
                    "from 0".to_owned()
                } else {
                    "1.00".to_owned()
                }
            }
            _ => format!("{} → {}", format::word(&one), format::word(&two)),
        },
        _ => "*unknown*".to_owned(),
    }
}

fn again(comparison: &Comparison) -> String {
    let (Some(again), Some(close)) = (&comparison.again, closeness(comparison)) else {
        return "\n## A second run\n\nThere is none yet: `cargo xtask compare --again`.\n"
            .to_owned();
    };
    let heads = head("", COLUMNS.iter().map(|column| column.title.to_owned()));
    let rows = comparison.first.rows.iter().map(|row| {
        let cells = COLUMNS.iter().map(|column| {
            let same = row.figure(column.key).is_none();
            if same { String::new() } else { ratio(row, again, column.key) }
        });
        head(&name(row), cells)
    });
    let mut differing = String::new();
    for row in &comparison.first.rows {
        for (fault, promise, one) in rank::verdicts(row) {
            let two = again.row(row.key()).map(|other| other.cell(&promise.key(fault)));
            let words = (format::word(&one), two.as_ref().map(format::word).unwrap_or_default());
            if words.0 != words.1 {
                let _ = writeln!(
                    differing,
                    "- {}: {} was {}, then {}",
                    title(row),
                    promise.key(fault),
                    words.0,
                    words.1
                );
            }
        }
    }
    if differing.is_empty() {
        differing = "Every verdict of the runs with faults is the same in both.\n".to_owned();
    }
    format!(
        "\n## A second run\n\n{close} Its figures, of the first's:\n\n{}\n{differing}",
        table(&heads, rows)
    )
}

fn notes(run: &StoredRun) -> String {
    let mut text = String::from("\n## How it was measured\n\n");
    for column in COLUMNS {
        let _ = writeln!(text, "- *{}*: {}", column.title, column.about);
    }
    for fault in FAULTS {
        let _ = writeln!(text, "- *{}*: {}", fault.title, fault.about);
    }
    text += "\n## Reasons\n\n";
    for (reason, places) in reasons(run) {
        let _ = writeln!(text, "- {}: {}", reason.replace('|', "/"), places.join(", "));
    }
    text
}
