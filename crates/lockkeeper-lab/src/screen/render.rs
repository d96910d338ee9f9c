//! The session as one file of SVG. Where pictures move, its lines appear when they came; elsewhere, and
//! for those who asked for less motion, all of them are there.

use super::{Line, Pane, Session};
use crate::picture::escape;

const STYLE: &str = include_str!("screen.css");
/// How many characters of the font fit into a hundred units: a little less than do, since fonts differ.
const LETTERS: usize = 13;
const ROW: usize = 18;
const PADDING: usize = 12;
const TITLE: usize = 26;
const GAP: usize = 10;
const WIDTH: usize = 920;
/// The last picture stays for so long, in milliseconds.
const PAUSE: u64 = 3_000;

/// Draws a session.
#[must_use]
pub fn render(session: &Session) -> String {
    let half = (WIDTH - GAP) / 2;
    let widths = [half, half, WIDTH];
    let wrapped: Vec<Vec<(&Line, String)>> =
        session.panes.iter().zip(widths).map(|(pane, width)| wrap(pane, width)).collect();
    let rows = |panes: &[Vec<(&Line, String)>]| panes.iter().map(Vec::len).max().unwrap_or(0);
    let above = rows(&wrapped[..wrapped.len().min(2)]);
    let height_above = height(above);
    let mut moments: Vec<u64> = wrapped.iter().flatten().map(|(line, _)| line.at_ms).collect();
    moments.sort_unstable();
    moments.dedup();
    let mut body = String::new();
    let mut whole = height_above;
    for (number, (pane, lines)) in session.panes.iter().zip(&wrapped).enumerate() {
        let (x, y) = match number {
            0 => (0, 0),
            1 => (half + GAP, 0),
            _ => (0, height_above + GAP),
        };
        let width = widths.get(number).copied().unwrap_or(WIDTH);
        let tall = if number < 2 { height_above } else { height(lines.len()) };
        whole = whole.max(y + tall);
        body += &drawn(pane, lines, (x, y), (width, tall), &moments);
    }
    let frames = frames(&moments, session.length_ms + PAUSE);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {whole}\" width=\"{WIDTH}\" \
         height=\"{whole}\" role=\"img\" aria-label=\"Two terminals want one lock, and a third lists it\">\n\
         <style>\n{STYLE}{frames}</style>\n{body}</svg>\n"
    )
}

fn height(rows: usize) -> usize {
    TITLE + rows * ROW + 2 * PADDING
}

fn drawn(
    pane: &Pane,
    lines: &[(&Line, String)],
    (x, y): (usize, usize),
    (width, height): (usize, usize),
    moments: &[u64],
) -> String {
    let mut text = format!(
        "<g transform=\"translate({x} {y})\"><rect class=\"pane\" x=\".5\" y=\".5\" width=\"{}\" \
         height=\"{}\" rx=\"6\"/><text class=\"title\" x=\"{PADDING}\" y=\"18\">{}</text>\n",
        width - 1,
        height - 1,
        escape(&pane.title)
    );
    for (row, (line, words)) in lines.iter().enumerate() {
        let moment = moments.binary_search(&line.at_ms).unwrap_or(0);
        let kind = match line {
            line if line.typed => "typed",
            line if line.text.starts_with("lockkeeper: ") => "said",
            line if line.text.starts_with("NAME ") => "head",
            _ => "printed",
        };
        let prompt = match line.typed && words.starts_with("$ ") {
            true => "<tspan class=\"prompt\">$</tspan> ",
            false => "",
        };
        let words = if prompt.is_empty() { words.as_str() } else { &words[2..] };
        text += &format!(
            "<text class=\"{kind} m{moment}\" xml:space=\"preserve\" x=\"{PADDING}\" y=\"{}\">{prompt}{}</text>\n",
            TITLE + PADDING + 12 + row * ROW,
            escape(words)
        );
    }
    text + "</g>\n"
}

/// Lines as wide as a terminal of this width shows them.
fn wrap(pane: &Pane, width: usize) -> Vec<(&Line, String)> {
    let most = (width - 2 * PADDING) * LETTERS / 100;
    let mut rows = Vec::new();
    for line in &pane.lines {
        let text = if line.typed { format!("$ {}", line.text) } else { line.text.clone() };
        let letters: Vec<char> = text.trim_end().chars().collect();
        match letters.is_empty() {
            true => rows.push((line, String::new())),
            false => rows.extend(letters.chunks(most).map(|row| (line, row.iter().collect()))),
        }
    }
    rows
}

/// When each line appears, again and again.
fn frames(moments: &[u64], length: u64) -> String {
    let seconds = length.div_ceil(1000);
    let mut text = "@media (prefers-reduced-motion: no-preference) {\n".to_owned();
    for (number, moment) in moments.iter().enumerate() {
        // Permille are exact enough, and need no floating point.
        let permille = moment * 1000 / (seconds * 1000);
        let (whole, tenth) = (permille / 10, permille % 10);
        text += &format!(
            "  @keyframes k{number} {{ 0% {{ opacity: 0 }} {whole}.{tenth}%, 100% {{ opacity: 1 }} }}\n  \
             .m{number} {{ animation: k{number} {seconds}s step-end infinite }}\n"
        );
    }
    text + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_as_in_a_terminal_and_text_is_escaped() {
        let line = |typed, text: &str| Line { at_ms: 1, typed, text: text.to_owned() };
        let pane = |lines| Pane { title: "t".to_owned(), lines };
        let long = "x".repeat(100);
        let session = Session {
            panes: vec![
                pane(vec![line(true, "a < b"), line(false, "")]),
                pane(vec![line(false, &long)]),
                pane(vec![line(false, &long)]),
            ],
            length_ms: 10,
        };
        let svg = render(&session);
        assert!(svg.contains("</tspan> a &lt; b</text>"), "{svg}");
        assert_eq!(svg.matches(&format!(">{long}<")).count(), 1, "in the wide pane only: {svg}");
        assert_eq!(svg.matches(">xxx").count(), 3, "two lines in the narrow one: {svg}");
    }
}
