//! Small pictures for people who read: the same thing twice, with and without its cure, in one file
//! of SVG that is readable on light and dark pages.
//!
//! Time is not to scale: every numbered step gets room, and the axis says when each was.

use super::draw::{Canvas, HATCH, LANE, clock};
use super::escape;
use super::scene::{Scene, process};
use crate::check::{Hold, Report, Story};
use crate::history::Record;

const STYLE: &str = include_str!("strip.css");
const WIDTH: f64 = 960.0;
const LEFT: f64 = 100.0;
const RIGHT: f64 = 24.0;
/// The least room between two steps.
const LEAST: f64 = 38.0;
/// The height of a panel's heading and its axis.
const HEAD: f64 = 84.0;
const FOOT: f64 = 16.0;
const ROW: f64 = 24.0;

/// Words beside what a client did.
#[derive(Debug, Clone)]
pub struct Mark {
    /// When, on the history's clock.
    pub at: u64,
    /// Whose lane.
    pub client: String,
    /// The words.
    pub text: String,
    /// Whether it is what went wrong.
    pub bad: bool,
}

/// One of the pictures.
#[derive(Debug)]
pub enum Panel<'a> {
    /// A history, with the moments of its numbered steps.
    Timeline {
        /// What is shown.
        heading: &'a str,
        /// The verdict in a word, its class, and what was found.
        verdict: (&'a str, &'a str, &'a str),
        /// The history.
        records: &'a [Record],
        /// What the judge says of it.
        report: &'a Report,
        /// When each step was.
        steps: &'a [u64],
        /// Words in the picture.
        marks: &'a [Mark],
    },
    /// Figures: what, how much, how that is written, and whether it is too much.
    Bars {
        /// What is shown.
        heading: &'a str,
        /// As of a timeline.
        verdict: (&'a str, &'a str, &'a str),
        /// The figures.
        bars: &'a [(String, f64, String, bool)],
        /// The figure that is as wide as the picture: the same for panels that are compared.
        most: f64,
    },
}

/// The panels below each other, as a file of SVG.
#[must_use]
pub fn strip(panels: &[Panel<'_>]) -> String {
    let mut body = String::new();
    let mut y = 8.0;
    for panel in panels {
        let (text, height) = match panel {
            Panel::Timeline { heading, verdict, records, report, steps, marks } => {
                let drawn = timeline(records, report, steps, marks);
                (heading_of(heading, *verdict) + &drawn.0, drawn.1)
            }
            Panel::Bars { heading, verdict, bars, most } => {
                let drawn = bars_of(bars, *most);
                (heading_of(heading, *verdict) + &drawn.0, drawn.1)
            }
        };
        let (width, inner) = (WIDTH - 16.0, height - 4.0);
        body.push_str(&format!(
            "<g transform=\"translate(0 {y:.1})\">\n<rect class=\"paper\" x=\"8\" y=\"0\" rx=\"6\" \
             width=\"{width}\" height=\"{inner:.1}\"/>\n{text}</g>\n"
        ));
        y += height + 8.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{WIDTH}\" \
         height=\"{y:.0}\" viewBox=\"0 0 {WIDTH} {y:.0}\">\n<style>\n{STYLE}</style>\n\
         {HATCH}{body}</svg>\n"
    )
}

fn heading_of(heading: &str, (word, class, found): (&str, &str, &str)) -> String {
    let tone = if class == "fail" { " bad" } else { "" };
    let (heading, word, found) = (escape(heading), escape(word), escape(found));
    format!(
        "<rect class=\"{class}\" x=\"20\" y=\"10\" rx=\"3\" width=\"74\" height=\"20\"/>\n\
         <text class=\"verdict\" x=\"57\" y=\"24\">{word}</text>\n\
         <text class=\"heading\" x=\"104\" y=\"25\">{heading}</text>\n\
         <text class=\"found{tone}\" x=\"20\" y=\"46\">{found}</text>\n"
    )
}

fn timeline(records: &[Record], report: &Report, steps: &[u64], marks: &[Mark]) -> (String, f64) {
    let story = Story::of(records);
    let mut scene = Scene::choose(&story, records, report);
    // Stories are short: all of it is shown, also what came after the first violation.
    let mut moments: Vec<u64> = steps.iter().chain([&story.first, &story.last]).copied().collect();
    moments.sort_unstable();
    moments.dedup();
    let (first, last) = (moments.first().copied().unwrap_or(0), moments.last().copied());
    (scene.from, scene.to) = (first, last.unwrap_or(1).max(first + 1));
    scene.show_all(&story);
    let scale = spread(&moments);
    let mut canvas = Canvas { scene: &scene, top: HEAD, scale, svg: String::new() };
    let bottom = canvas.y(scene.lanes.len());
    for (number, at) in steps.iter().enumerate() {
        step(&mut canvas, number + 1, *at, first, bottom);
    }
    canvas.history(&story, process);
    overlaps(&mut canvas, &story);
    for mark in marks {
        let client = story.clients.iter().position(|client| *client == mark.client);
        let Some(lane) = client.and_then(|client| scene.lane(client)) else { continue };
        let (x, y) = (canvas.x(mark.at), canvas.y(lane) + 18.0);
        let bad = if mark.bad { " bad" } else { "" };
        let (side, x) = if x > canvas.right() - 130.0 { (" left", x - 5.0) } else { ("", x + 5.0) };
        canvas.text(&format!("mark{bad}{side}"), x, y, &mark.text);
    }
    (canvas.svg, bottom + FOOT)
}

/// Gives every moment its place: the least room for each, and the rest by time.
fn spread(moments: &[u64]) -> Vec<(u64, f64)> {
    let wide = WIDTH - LEFT - RIGHT - 16.0;
    let (Some(&first), Some(&last)) = (moments.first(), moments.last()) else {
        return Vec::new();
    };
    let gaps = moments.len().saturating_sub(1).max(1) as f64;
    let least = LEAST.min(wide / gaps);
    let rest = (wide - least * gaps).max(0.0);
    let span = (last - first).max(1) as f64;
    let place = |(number, at): (usize, &u64)| {
        (*at, LEFT + least * number as f64 + rest * (at - first) as f64 / span)
    };
    moments.iter().enumerate().map(place).collect()
}

fn step(canvas: &mut Canvas<'_>, number: usize, at: u64, first: u64, bottom: f64) {
    let x = canvas.x(at);
    canvas.line("step", x, HEAD - 4.0, bottom);
    canvas.svg.push_str(&format!(
        "<circle class=\"number-disc\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"8\"/>\n",
        HEAD - 24.0
    ));
    canvas.text("number", x, HEAD - 20.5, &number.to_string());
    let rounded = (at - first + 5_000_000) / 10_000_000 * 10_000_000;
    canvas.text("time", x, HEAD - 6.0, &clock(rounded));
}

/// A red area where two held at once.
fn overlaps(canvas: &mut Canvas<'_>, story: &Story<'_>) {
    let bad: Vec<&Hold> =
        story.holds.iter().filter(|hold| canvas.scene.bad.contains(&hold.claim)).collect();
    for (place, one) in bad.iter().enumerate() {
        for other in &bad[place + 1..] {
            let (from, to) = (one.start.max(other.start), one.end.min(other.end));
            let lane = |hold: &Hold| canvas.scene.lane(story.held(hold).client);
            let (Some(upper), Some(lower)) = (lane(one), lane(other)) else { continue };
            if one.name != other.name || from >= to {
                continue;
            }
            let (upper, lower) = (upper.min(lower), upper.max(lower));
            let (y, height) = (canvas.y(upper), (lower - upper + 1) as f64 * LANE);
            canvas.bar("overlap", (from, to), y, height, "two held it at once");
        }
    }
}

fn bars_of(bars: &[(String, f64, String, bool)], most: f64) -> (String, f64) {
    const LABELS: f64 = 300.0;
    const FIGURES: f64 = 170.0;
    let mut svg = String::new();
    for (number, (what, value, written, bad)) in bars.iter().enumerate() {
        let y = 60.0 + number as f64 * ROW;
        let room = WIDTH - LABELS - FIGURES;
        let wide = (value / most.max(f64::MIN_POSITIVE) * room).clamp(2.0, room);
        let class = if *bad { "bar bad" } else { "bar" };
        let (end, what, written) = (LABELS + wide + 6.0, escape(what), escape(written));
        let tone = if *bad { " bad" } else { "" };
        svg.push_str(&format!(
            "<text class=\"left\" x=\"{:.1}\" y=\"{:.1}\">{what}</text>\n\
             <rect class=\"{class}\" x=\"{LABELS}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
             height=\"16\"/>\n<text class=\"mark{tone}\" x=\"{end:.1}\" y=\"{:.1}\">{written}</text>\n",
            LABELS - 8.0,
            y + 12.5,
            y + 12.5,
        ));
    }
    (svg, 60.0 + bars.len() as f64 * ROW + FOOT)
}
