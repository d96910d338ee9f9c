//! The page with charts: one file, no script, light and dark.

use super::super::cell::Cell;
use super::super::column::{CAPABILITIES, COLUMNS, Group, Unit};
use super::super::measure::faults::FAULTS;
use super::super::stored::{Comparison, Row, StoredRun};
use super::rank::{self, Order};
use super::{advice, chart, columns, format, markdown, reasons, title};
use crate::picture::escape;

const STYLE: &str = include_str!("page.css");

/// `docs/comparison.html`.
#[must_use]
pub fn html(comparison: &Comparison) -> String {
    let run = &comparison.first;
    let charts = |group: Group| -> String {
        let charts: String = columns(group).map(|column| chart::chart(run, column)).collect();
        format!("<div class=\"charts\">\n{charts}</div>\n")
    };
    let relative = columns(Group::Performance).any(chart::is_relative);
    let note = if relative {
        "<p>Times are multiples of the fastest that reaches several machines; shorter is better.</p>\n"
    } else {
        ""
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Locks, compared</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Locks, compared</h1>\n\
         <p>{about}</p>\n<p class=\"legend\"><span class=\"ours\"></span> recipes of ours \
         <span class=\"other\"></span> other libraries</p>\n\
         <h2>Which should I take</h2>\n<p class=\"advice\">{advice}</p>\n\
         <h2>In order</h2>\n{orders}\
         <h2>Performance</h2>\n{note}{performance}\
         <h2>Waiting</h2>\n{waiting}\
         <h2>Reliability</h2>\n{verdicts}{reliability}\
         <h2>Simplicity</h2>\n{simplicity}\
         <h2>What each can do</h2>\n{abilities}\
         <h2>Times on this machine</h2>\n<p>{machine}</p>\n{absolute}\
         <h2>A second run</h2>\n{again}\
         <h2>Reasons</h2>\n{reasons}</body>\n</html>\n",
        about = inline(&markdown::about(run)),
        advice = inline(&advice::advice(run)),
        orders = orders(run),
        performance = charts(Group::Performance),
        waiting = charts(Group::Waiting),
        verdicts = verdicts(run),
        reliability = charts(Group::Reliability),
        simplicity = charts(Group::Simplicity),
        abilities = abilities(run),
        machine = escape(&markdown::machine(run)),
        absolute = absolute(run),
        again = again(comparison),
        reasons = listed(run),
    )
}

/// Text with `**bold**`, `*emphasis*` and code in backquotes.
fn inline(text: &str) -> String {
    let mut html = escape(text);
    for (mark, tag) in [("**", "b"), ("*", "em"), ("`", "code")] {
        let parts: Vec<&str> = html.split(mark).collect();
        if parts.len().is_multiple_of(2) {
            // A mark without its partner is a star.
            continue;
        }
        let mut marked = String::new();
        for (at, part) in parts.iter().enumerate() {
            marked.push_str(&if at % 2 == 1 {
                format!("<{tag}>{part}</{tag}>")
            } else {
                (*part).to_owned()
            });
        }
        html = marked;
    }
    html
}

fn name(row: &Row) -> String {
    let class = if row.ours { "ours" } else { "other" };
    format!("<th scope=\"row\" class=\"{class}\">{}</th>", escape(&title(row)))
}

fn table(heads: &[String], rows: impl Iterator<Item = String>) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escape(head))).collect();
    let rows: String = rows.map(|row| format!("<tr>{row}</tr>\n")).collect();
    format!("<div class=\"wide\"><table>\n<tr><th></th>{heads}</tr>\n{rows}</table></div>\n")
}

fn cell(cell: &Cell, text: &str) -> String {
    let (class, why) = match cell {
        Cell::Held(why) => ("held", why.as_str()),
        Cell::Broken(why) => ("broken", why.as_str()),
        Cell::Unknown(why) => ("unknown", why.as_str()),
        Cell::NotApplicable(why) => ("none", why.as_str()),
        Cell::Figure(_) | Cell::Words(_) => ("", ""),
    };
    let text = escape(text.trim_matches('*'));
    format!("<td class=\"{class}\" title=\"{}\">{text}</td>", escape(why))
}

fn orders(run: &StoredRun) -> String {
    let mut text = String::from("<div class=\"orders\">\n");
    for order in Order::ALL {
        text += &format!(
            "<section><h3>{}</h3>\n<p>{}</p>\n<ol>\n",
            order.title(),
            escape(order.rule())
        );
        for it in rank::ranked(run, order) {
            let class = if it.row.ours { "ours" } else { "other" };
            text += &format!(
                "<li><span class=\"{class}\">{}</span> <small>{}</small></li>\n",
                escape(&title(it.row)),
                escape(&it.why)
            );
        }
        text += "</ol></section>\n";
    }
    text += "</div>\n<ul>\n";
    for line in markdown::common(run) {
        text += &format!("<li>{}</li>\n", escape(&line));
    }
    text + "</ul>\n"
}

/// Two cells for each fault: claims and effects.
fn verdicts(run: &StoredRun) -> String {
    let heads: String = FAULTS
        .iter()
        .map(|fault| {
            format!("<th colspan=\"2\" title=\"{}\">{}</th>", escape(fault.about), fault.title)
        })
        .collect();
    let both = "<th>claims</th><th>effects</th>".repeat(FAULTS.len());
    let mut rows = String::new();
    for row in &run.rows {
        rows += &format!("<tr>{}", name(row));
        for (_, _, verdict) in rank::verdicts(row) {
            rows += &cell(&verdict, &format::word(&verdict));
        }
        rows += "</tr>\n";
    }
    format!(
        "<p>Claims: no two hold at once. Effects: a resource that checks tokens takes no write of a stale \
         holder. Ours in a short run with \
         many of one kind of fault, of which every moment is judged; other libraries once, at a known step: when \
         another one has the lock, does the first, asked, still say that it holds it? Broken is certain; held says \
         only that seconds of faults found nothing. The reasons are shown under \
         the pointer, and at the end.</p>\n<div class=\"wide\"><table class=\"verdicts\">\n<tr><th></th>{heads}</tr>\n\
         <tr class=\"second\"><th></th>{both}</tr>\n{rows}</table></div>\n"
    )
}

fn abilities(run: &StoredRun) -> String {
    let rows = run.rows.iter().map(|row| {
        let can = row.cell(CAPABILITIES);
        let (version, reach) = (escape(&row.version), escape(&row.reach));
        let can = cell(&can, &format::word(&can));
        format!("{}<td>{version}</td><td>{reach}</td>{can}", name(row))
    });
    table(&["version", "reach", "can"].map(str::to_owned), rows)
}

fn absolute(run: &StoredRun) -> String {
    let times: Vec<_> =
        COLUMNS.iter().filter(|column| matches!(column.unit, Unit::Time | Unit::OfTtl)).collect();
    let mut heads: Vec<String> = times.iter().map(|column| column.title.to_owned()).collect();
    heads.push(markdown::FLUSH.to_owned());
    let rows = run.rows.iter().map(|row| {
        let cells = times.iter().map(|column| {
            let found = row.cell(column.key);
            let text = found.figure().map_or_else(|| format::word(&found), format::time);
            cell(&found, &text)
        });
        let flush = row.flush.map_or_else(|| "unknown".to_owned(), format::time);
        format!("{}{}<td>{flush}</td>", name(row), cells.collect::<String>())
    });
    table(&heads, rows)
}

fn again(comparison: &Comparison) -> String {
    let (Some(again), Some(close)) = (&comparison.again, markdown::closeness(comparison)) else {
        return "<p>There is none yet: <code>cargo xtask compare --again</code>.</p>\n".to_owned();
    };
    let heads: Vec<String> = COLUMNS.iter().map(|column| column.title.to_owned()).collect();
    let rows = comparison.first.rows.iter().map(|row| {
        let cells = COLUMNS.iter().map(|column| match row.figure(column.key) {
            Some(_) => format!("<td>{}</td>", escape(&markdown::ratio(row, again, column.key))),
            None => "<td></td>".to_owned(),
        });
        format!("{}{}", name(row), cells.collect::<String>())
    });
    format!("<p>{} Its figures, of the first's:</p>\n{}", escape(&close), table(&heads, rows))
}

fn listed(run: &StoredRun) -> String {
    let items = reasons(run).into_iter().map(|(reason, places)| {
        format!("<li>{}: <small>{}</small></li>\n", inline(&reason), escape(&places.join(", ")))
    });
    format!("<ul class=\"reasons\">\n{}</ul>\n", items.collect::<String>())
}
