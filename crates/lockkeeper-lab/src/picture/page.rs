//! The page around the drawing.

use super::draw::{self, COLOURS, MARKED};
use super::escape;
use super::scene::Scene;
use crate::check::{Report, Story, Verdict};
use crate::history::Record;

const STYLE: &str = include_str!("page.css");

pub(super) fn write(
    story: &Story<'_>,
    records: &[Record],
    report: &Report,
    scene: &Scene,
) -> String {
    let class = match report.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Unknown => "unknown",
    };
    let note = scene.note.as_ref().map(|note| format!("<p class=\"note\">{}</p>\n", escape(note)));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{verdict}: a history of locks</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1><span class=\"{class}\">{verdict}</span> A history of locks</h1>\n\
         {reasons}{counters}{note}<div class=\"wide\">\n{svg}</div>\n{legend}{violations}\
         </body>\n</html>\n",
        verdict = report.verdict,
        reasons = reasons(report),
        counters = counters(report),
        note = note.unwrap_or_default(),
        svg = draw::svg(story, records, report, scene),
        legend = legend(story, scene),
        violations = violations(report),
    )
}

fn reasons(report: &Report) -> String {
    let items = report.reasons.iter().map(|reason| format!("<li>{}</li>\n", escape(reason)));
    let items: String = items.collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

fn counters(report: &Report) -> String {
    let counters = &report.counters;
    let mut cells = vec![
        ("holds".to_owned(), counters.holds.to_string()),
        ("names".to_owned(), counters.names.to_string()),
        ("clients".to_owned(), counters.clients.to_string()),
        ("hand-overs".to_owned(), counters.hand_overs.to_string()),
        ("contended asks".to_owned(), format!("{} %", counters.contended_percent())),
        ("expiries while held".to_owned(), counters.expiries.to_string()),
        ("lost writes without a fence".to_owned(), counters.lost_writes.to_string()),
        ("writes stopped by a fence".to_owned(), counters.fenced_off.to_string()),
    ];
    if counters.id_calls > 0 {
        cells.push(("ids".to_owned(), format!("{} in {} calls", counters.ids, counters.id_calls)));
    }
    for (kind, count) in &counters.faults {
        cells.push((kind.clone(), format!("{}, hit {} holds", count.done, count.holds)));
    }
    let cells = cells.iter().map(|(what, count)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(what), escape(count))
    });
    format!("<dl>\n{}</dl>\n", cells.collect::<String>())
}

fn legend(story: &Story<'_>, scene: &Scene) -> String {
    let mut names: Vec<usize> =
        scene.claims.iter().map(|&place| story.claims[place].name).collect();
    names.sort_unstable();
    names.dedup();
    let more = names.len().saturating_sub(2 * COLOURS);
    let mut items: Vec<(String, String)> = names
        .iter()
        .take(2 * COLOURS)
        .map(|&name| (format!("hold n{}", name % COLOURS), format!("holds {}", story.names[name])))
        .collect();
    if more > 0 {
        items.push(("after n0".to_owned(), format!("and {more} more names, in the same colours")));
    }
    for (class, text) in [
        ("wait", "waits"),
        ("after n0", "pale: no longer valid, not yet given back"),
        ("fault", "fault"),
        ("effect", "write taken"),
        ("effect refused", "write refused"),
        ("hold bad n0", "red: part of a violation"),
    ] {
        items.push((class.to_owned(), text.to_owned()));
    }
    if !scene.issues.is_empty() {
        items.push(("issue n0".to_owned(), "ids: from asking to returning".to_owned()));
    }
    let items = items.iter().map(|(class, text)| {
        let shape = if class.starts_with("effect") {
            format!("<line class=\"{class}\" x1=\"10\" x2=\"10\" y1=\"1\" y2=\"13\"/>")
        } else {
            let (y, height) = if class == "wait" { (5, 4) } else { (1, 12) };
            format!("<rect class=\"{class}\" x=\"1\" y=\"{y}\" width=\"18\" height=\"{height}\"/>")
        };
        format!("<li><svg width=\"20\" height=\"14\">{shape}</svg> {}</li>\n", escape(text))
    });
    format!("<ul class=\"legend\">\n{}</ul>\n", items.collect::<String>())
}

fn violations(report: &Report) -> String {
    if report.violations.is_empty() {
        return String::new();
    }
    let items = report.violations.iter().take(MARKED).map(|violation| {
        let lines: Vec<String> = violation
            .records
            .iter()
            .zip(&violation.lines)
            .map(|(index, line)| format!("#{index} {}", escape(line)))
            .collect();
        let (rule, sentence) = (violation.rule, escape(&violation.sentence));
        format!("<li><b>{rule}</b>: {sentence}\n<pre>{}</pre></li>\n", lines.join("\n"))
    });
    let list = items.collect::<String>();
    let total: usize = report.broken.values().sum();
    let more = match total.saturating_sub(MARKED) {
        0 => String::new(),
        more => format!("<p>And {more} more.</p>\n"),
    };
    format!("<h2>Violations</h2>\n<ol>\n{list}</ol>\n{more}")
}
