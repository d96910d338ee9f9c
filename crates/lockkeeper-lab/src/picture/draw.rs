//! The drawing itself.

use super::escape;
use super::scene::{Scene, last_of, process};
use crate::check::{End, Report, Story};
use crate::history::Record;

const LEFT: f64 = 110.0;
const WIDTH: f64 = 1240.0;
const RIGHT: f64 = 20.0;
pub(super) const LANE: f64 = 28.0;
/// Labels of violations are spread over this many lines, so that neighbours stay readable.
const LABEL_LINES: usize = 4;
/// More than this many violations would cover what they point at.
pub(super) const MARKED: usize = 20;

/// How many colours for names the page has.
pub(super) const COLOURS: usize = 8;

pub(super) struct Canvas<'a> {
    pub(super) scene: &'a Scene,
    pub(super) top: f64,
    /// Moments and their x coordinates, in order, the shown range first and last. Between two of
    /// them time is linear.
    pub(super) scale: Vec<(u64, f64)>,
    pub(super) svg: String,
}

impl Canvas<'_> {
    /// The x coordinate of a moment; moments outside the shown range are put at the edge.
    pub(super) fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.scene.from, self.scene.to);
        let after = self.scale.partition_point(|(moment, _)| *moment < at);
        let Some(&(to, right)) = self.scale.get(after) else { return self.right() };
        let Some(&(from, left)) = after.checked_sub(1).and_then(|it| self.scale.get(it)) else {
            return right;
        };
        left + (at - from) as f64 / (to - from) as f64 * (right - left)
    }

    fn left(&self) -> f64 {
        self.scale.first().map_or(LEFT, |(_, x)| *x)
    }

    pub(super) fn right(&self) -> f64 {
        self.scale.last().map_or(LEFT, |(_, x)| *x)
    }

    /// Draws what the history says, without an axis and without what is wrong with it.
    /// `label` is what stands before the lane of a client.
    pub(super) fn history(&mut self, story: &Story<'_>, label: fn(&str) -> &str) {
        lanes(self, story, label);
        claims(self, story);
        effects(self, story);
        issues(self, story);
        faults(self, story);
    }

    pub(super) fn y(&self, lane: usize) -> f64 {
        self.top + lane as f64 * LANE
    }

    /// A bar that is visible however short it is.
    pub(super) fn bar(&mut self, class: &str, span: (u64, u64), y: f64, height: f64, title: &str) {
        if span.1 < self.scene.from || span.0 > self.scene.to {
            return;
        }
        let (x, width) = (self.x(span.0), (self.x(span.1) - self.x(span.0)).max(1.5));
        let title = escape(title);
        self.svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height}\"><title>{title}</title></rect>\n"
        ));
    }

    pub(super) fn line(&mut self, class: &str, x: f64, from: f64, to: f64) {
        self.svg.push_str(&format!(
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\"/>\n"
        ));
    }

    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.svg.push_str(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n"
        ));
    }
}

/// The pattern of faults.
pub(super) const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" \
    patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect class=\"hatch\" \
    width=\"2\" height=\"7\"/></pattern></defs>\n";

/// The whole picture.
pub(super) fn svg(story: &Story<'_>, records: &[Record], report: &Report, scene: &Scene) -> String {
    let labels = if report.violations.is_empty() { 0.0 } else { LABEL_LINES as f64 * 14.0 };
    let scale = vec![(scene.from, LEFT), (scene.to, LEFT + WIDTH)];
    let mut canvas = Canvas { scene, top: 30.0 + labels, scale, svg: String::new() };
    let (width, height) = (LEFT + WIDTH + RIGHT, canvas.y(scene.lanes.len()) + 10.0);
    canvas.svg.push_str(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"Timeline\" \
         width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n{HATCH}"
    ));
    axis(&mut canvas, story);
    canvas.history(story, |client| client);
    violations(&mut canvas, story, records, report);
    canvas.svg.push_str("</svg>\n");
    canvas.svg
}

/// Lines at round times, about ten of them.
fn axis(canvas: &mut Canvas<'_>, story: &Story<'_>) {
    let (from, to) = (canvas.scene.from - story.first, canvas.scene.to - story.first);
    let mut step: u64 = 1;
    while (to - from) / step > 12 {
        let two_or_five = if step.to_string().starts_with('2') { (5, 2) } else { (2, 1) };
        step = step.saturating_mul(two_or_five.0) / two_or_five.1;
    }
    let bottom = canvas.y(canvas.scene.lanes.len());
    let mut at = from.div_ceil(step) * step;
    while at <= to {
        let x = canvas.x(at + story.first);
        canvas.line("grid", x, canvas.top - 6.0, bottom);
        canvas.text("time", x, canvas.top - 10.0, &clock(at));
        at += step;
    }
}

/// A time since the beginning, with only the digits it needs.
pub(super) fn clock(at: u64) -> String {
    let text = format!("{}.{:09}", at / 1_000_000_000, at % 1_000_000_000);
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn lanes(canvas: &mut Canvas<'_>, story: &Story<'_>, label: impl Fn(&str) -> &str) {
    let mut before = None;
    for (lane, &client) in canvas.scene.lanes.iter().enumerate() {
        let client = story.clients[client];
        let y = canvas.y(lane);
        let class = if before == Some(process(client)) { "lane" } else { "lane process" };
        before = Some(process(client));
        let (begin, end) = (canvas.left() - 80.0, canvas.right());
        canvas.svg.push_str(&format!(
            "<line class=\"{class}\" x1=\"{begin}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n"
        ));
        canvas.text("client", canvas.left() - 8.0, y + 18.0, label(client));
    }
}

fn claims(canvas: &mut Canvas<'_>, story: &Story<'_>) {
    for &place in &canvas.scene.claims {
        let claim = &story.claims[place];
        let Some(lane) = canvas.scene.lane(claim.client) else { continue };
        let y = canvas.y(lane);
        let what = format!("claim {} on {}", claim.number, story.name_of(claim));
        let answer = claim.granted.map(|it| it.learnt.at).or(claim.refused.map(|it| it.at));
        let killed = story.hits[claim.client].kills.first_from(claim.ask.at);
        let unanswered = killed.map_or(story.last, |killed| killed.at);
        let waited = (claim.ask.at, answer.unwrap_or(unanswered));
        let mark = if canvas.scene.bad.contains(&place) { " bad" } else { "" };
        // A claim that was granted shows what is wrong with it where it holds.
        let vain = if claim.granted.is_none() { mark } else { "" };
        canvas.bar(&format!("wait{vain}"), waited, y + 12.0, 4.0, &format!("{what}: waits"));
        let colour = claim.name % COLOURS;
        let Some(granted) = claim.granted else { continue };
        let hold = canvas.scene.holds.get(&place);
        let end = hold.map_or(granted.learnt.at, |hold| hold.end.min(story.last));
        // The time after the core: no longer believed, not yet released.
        let last = last_of(story, place);
        if last > end && hold.is_none_or(|hold| hold.ended_by != End::Killed) {
            let class = format!("after n{colour}");
            canvas.bar(&class, (end, last), y + 5.0, 18.0, &format!("{what}: after its end"));
        }
        if let Some(hold) = hold {
            let class = format!("hold n{colour}{mark}");
            let title = format!("{what}: held, token {}, ended: {:?}", claim.token, hold.ended_by);
            canvas.bar(&class, (hold.start, end), y + 5.0, 18.0, &title);
        }
    }
}

fn effects(canvas: &mut Canvas<'_>, story: &Story<'_>) {
    let shown = story.effects.iter().filter(|effect| canvas.scene.shows(effect.stamp.at));
    for effect in shown.take(10_000) {
        let client = story.claim(effect.number).map(|claim| claim.client);
        let Some(lane) = client.and_then(|client| canvas.scene.lane(client)) else { continue };
        let class = if effect.accepted { "effect" } else { "effect refused" };
        let (x, y) = (canvas.x(effect.stamp.at), canvas.y(lane));
        canvas.line(class, x, y + 2.0, y + LANE - 2.0);
    }
}

fn issues(canvas: &mut Canvas<'_>, story: &Story<'_>) {
    for &place in &canvas.scene.issues {
        let issue = &story.issues[place];
        let Some(lane) = canvas.scene.lane(issue.client) else { continue };
        let (generator, y) = (story.generators[issue.generator], canvas.y(lane));
        let what = match issue.last - issue.first {
            0 => format!("{generator}: id {}", issue.first),
            _ => format!("{generator}: ids {} to {}", issue.first, issue.last),
        };
        let colour = issue.generator % COLOURS;
        let class = format!("issue n{colour}");
        canvas.bar(&class, (issue.asked, issue.returned.at), y + 9.0, 10.0, &what);
    }
}

fn faults(canvas: &mut Canvas<'_>, story: &Story<'_>) {
    for fault in &story.faults {
        let span = (fault.begins.at, fault.ends.min(story.last));
        if span.1 < canvas.scene.from || span.0 > canvas.scene.to {
            continue;
        }
        let shared = fault.is_shared(&story.clients);
        let mut labelled = false;
        for (lane, &client) in canvas.scene.lanes.iter().enumerate() {
            if !shared && !fault.hits(story.clients[client]) {
                continue;
            }
            let title = format!("{} of {}", fault.kind, fault.process);
            let y = canvas.y(lane);
            canvas.bar("fault", span, y, LANE, &title);
            if !labelled {
                canvas.text("kind", canvas.x(span.0) + 2.0, y + 9.0, fault.kind);
                labelled = true;
            }
        }
    }
}

fn violations(canvas: &mut Canvas<'_>, story: &Story<'_>, records: &[Record], report: &Report) {
    let bottom = canvas.y(canvas.scene.lanes.len());
    for (number, violation) in report.violations.iter().take(MARKED).enumerate() {
        let shown = violation.records.iter().filter(|&&it| canvas.scene.shows(records[it].at));
        let shown: Vec<usize> = shown.copied().collect();
        let Some(&last) = shown.last() else { continue };
        for &index in &shown {
            let client = story.clients.iter().position(|it| *it == records[index].client);
            if let Some(lane) = client.and_then(|client| canvas.scene.lane(client)) {
                let (x, y) = (canvas.x(records[index].at), canvas.y(lane) + LANE / 2.0);
                canvas.svg.push_str(&format!(
                    "<circle class=\"violation\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>\n"
                ));
            }
        }
        let x = canvas.x(records[last].at);
        let y = 14.0 + (number % LABEL_LINES) as f64 * 14.0;
        canvas.line("violation", x, y, bottom);
        let (side, x) = if x > LEFT + WIDTH * 0.8 { (" left", x - 4.0) } else { ("", x + 4.0) };
        let label = format!("{} {}", number + 1, violation.rule);
        canvas.text(&format!("violation{side}"), x, y, &label);
    }
}
