//! What the model looks like, as lines that fit the terminal.

use super::fit::{cut, fit, share, width};
use super::model::{Model, Page, Question, longest_held, longest_wait};
use crate::inspect::{ABSENT, cells};
use crate::text::{span, visible};
use lockkeeper::backend::LockView;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Selected,
    Faint,
}

/// One line, no wider than the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) style: Style,
}

/// Lines that are not the list: the head, the titles, the message, the keys.
pub(super) const FRAME: usize = 4;

/// What the screen shows at this size, at this time of day.
pub(super) fn draw(model: &Model, columns: usize, lines: usize, time: &str) -> Vec<Line> {
    let room = lines.saturating_sub(FRAME);
    let mut shown = vec![head(model, columns, time)];
    match &model.page {
        Page::Detail { name, from } => shown.extend(detail(model, name, *from, columns, room + 1)),
        _ => shown.extend(list(model, columns, room)),
    }
    shown.truncate(lines.saturating_sub(2));
    shown.resize_with(lines.saturating_sub(2), || plain(String::new()));
    shown.extend(foot(model, columns));
    shown.truncate(lines);
    shown
}

fn plain(text: String) -> Line {
    Line { text, style: Style::Plain }
}

fn head(model: &Model, columns: usize, time: &str) -> Line {
    let waiting: usize = model.locks.iter().map(|it| it.waiters.len()).sum();
    let (locks, more) = (model.locks.len(), if model.is_cut { " or more" } else { "" });
    let noun = if locks == 1 { "lock" } else { "locks" };
    let counts = format!("{locks}{more} {noun}, {waiting} waiting");
    let store = visible(&model.store);
    let left = format!("{counts} · by {} · {store}", model.sort.word());
    let room = columns.saturating_sub(width(time) + 1);
    Line { text: cut(&format!("{} {time}", fit(&left, room)), columns), style: Style::Bold }
}

/// A column of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Holder,
    Mode,
    Held,
    Expires,
    Waiting,
    Longest,
    Token,
    Note,
}

impl Column {
    const fn title(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Holder => "HOLDER",
            Self::Mode => "MODE",
            Self::Held => "HELD",
            Self::Expires => "EXPIRES",
            Self::Waiting => "WAITING",
            Self::Longest => "FOR",
            Self::Token => "TOKEN",
            Self::Note => "NOTE",
        }
    }

    /// From which width of the terminal on there is room for it.
    const fn least_width(self) -> usize {
        match self {
            Self::Name | Self::Waiting => 0,
            Self::Holder => 30,
            Self::Longest => 44,
            Self::Held => 54,
            Self::Note => 90,
            Self::Expires => 100,
            Self::Mode => 110,
            Self::Token => 130,
        }
    }

    /// Whether it may be cut: numbers may not.
    const fn is_flexible(self) -> bool {
        matches!(self, Self::Name | Self::Holder | Self::Note)
    }
}

const COLUMNS: [Column; 9] = [
    Column::Name,
    Column::Waiting,
    Column::Longest,
    Column::Holder,
    Column::Held,
    Column::Mode,
    Column::Expires,
    Column::Token,
    Column::Note,
];

fn cell(lock: &LockView, column: Column) -> String {
    let holder = lock.holders.first().map(cells);
    let of_holder =
        |at: usize| holder.as_ref().map_or_else(|| ABSENT.to_owned(), |it| it[at].clone());
    let waits = !lock.waiters.is_empty();
    match column {
        Column::Name => visible(lock.name.as_str()),
        Column::Holder => match lock.holders.len() {
            0 | 1 => of_holder(0),
            number => format!("{} +{}", of_holder(0), number - 1),
        },
        Column::Mode => of_holder(1),
        Column::Held if holder.is_some() => span(longest_held(lock)),
        Column::Held => ABSENT.to_owned(),
        Column::Expires => of_holder(3),
        Column::Waiting if waits => lock.waiters.len().to_string(),
        Column::Longest if waits => span(longest_wait(lock)),
        Column::Waiting | Column::Longest => ABSENT.to_owned(),
        Column::Token => of_holder(4),
        Column::Note => of_holder(5),
    }
}

fn list(model: &Model, columns: usize, room: usize) -> Vec<Line> {
    if model.locks.is_empty() {
        return vec![plain(String::new()), plain(cut("no lock is held", columns))];
    }
    let wanted: Vec<_> = COLUMNS.into_iter().filter(|it| columns >= it.least_width()).collect();
    let titles = wanted.iter().map(|it| it.title().to_owned()).collect();
    let end = model.locks.len().min(model.from + room);
    let shown = &model.locks[model.from.min(end)..end];
    let row = |lock: &LockView| wanted.iter().map(|it| cell(lock, *it)).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(shown.iter().map(row)).collect();
    let flexible: Vec<_> = wanted.iter().map(|it| it.is_flexible()).collect();
    let selected = model.selection();
    let texts = laid_out(&rows, &flexible, columns).into_iter().enumerate();
    let styled = texts.map(|(at, text)| match at {
        0 => Line { text, style: Style::Faint },
        at if model.from + at - 1 == selected => {
            Line { text: fit(&text, columns), style: Style::Selected }
        }
        _ => plain(text),
    });
    styled.collect()
}

/// Rows as lines. Columns that are not flexible have what they need, the others share the rest.
fn laid_out(rows: &[Vec<String>], flexible: &[bool], columns: usize) -> Vec<String> {
    const GAP: usize = 2;
    let widest = |at: usize| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
    let mut widths: Vec<_> = (0..flexible.len()).map(widest).collect();
    let gaps = GAP * flexible.len().saturating_sub(1);
    let fixed: usize = widths.iter().zip(flexible).filter(|it| !it.1).map(|it| *it.0).sum();
    let room = columns.saturating_sub(gaps + fixed);
    let wishes: Vec<_> = widths.iter().zip(flexible).filter(|it| *it.1).map(|it| *it.0).collect();
    let mut shares = share(room, &wishes).into_iter();
    for (width, flexible) in widths.iter_mut().zip(flexible) {
        if *flexible {
            *width = shares.next().unwrap_or(0);
        }
    }
    let line = |row: &Vec<String>| {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, width)| fit(cell, *width)).collect();
        cut(cells.join("  ").trim_end(), columns)
    };
    rows.iter().map(line).collect()
}

/// Everyone at one lock.
fn detail(model: &Model, name: &str, from: usize, columns: usize, room: usize) -> Vec<Line> {
    let mut lines = vec![Line { text: cut(&visible(name), columns), style: Style::Bold }];
    let Some(lock) = model.lock(name) else {
        lines.push(plain(cut("is free", columns)));
        return lines;
    };
    // On a narrow terminal mode and expiry give way to the names.
    let wanted: &[usize] = if columns < 80 { &[0, 2, 4, 5] } else { &[0, 1, 2, 3, 4, 5] };
    let titles = ["HELD BY", "MODE", "HELD", "EXPIRES", "TOKEN", "NOTE"].map(str::to_owned);
    let rows = std::iter::once(titles).chain(lock.holders.iter().map(cells));
    let pick = |row: [String; 6]| wanted.iter().map(|at| row[*at].clone()).collect::<Vec<_>>();
    let rows: Vec<_> = rows.map(pick).collect();
    let flexible: Vec<_> = wanted.iter().map(|at| matches!(at, 0 | 5)).collect();
    let mut body = laid_out(&rows, &flexible, columns);
    if !lock.waiters.is_empty() {
        body.push(String::new());
        let mut rows =
            vec![["PLACE", "WAITING", "MODE", "FOR", "NOTE"].map(str::to_owned).to_vec()];
        rows.extend(lock.waiters.iter().enumerate().map(|(at, waiter)| {
            let note = visible(&waiter.note);
            let (who, mode) = (visible(&waiter.identity), waiter.mode.to_string());
            vec![(at + 1).to_string(), who, mode, span(waiter.waiting_for), note]
        }));
        body.extend(laid_out(&rows, &[false, true, false, false, true], columns));
    }
    lines.extend(body.into_iter().skip(from).take(room.saturating_sub(1)).map(plain));
    lines
}

/// The last two lines: what happened and the keys, or a question and its answer so far.
fn foot(model: &Model, columns: usize) -> [Line; 2] {
    let (message, keys) = match &model.page {
        Page::Break(question) => (whom(question), answer(&question.reason, columns)),
        Page::Detail { .. } => (model.message.clone(), "esc back · ↑↓ scroll · b break".to_owned()),
        Page::List => {
            let keys = "q quit · s sort · ↑↓ select · enter show · b break";
            (model.message.clone(), keys.to_owned())
        }
    };
    let style = match model.page {
        Page::Break(_) => Style::Plain,
        _ => Style::Faint,
    };
    [
        Line { text: cut(&visible(&message), columns), style: Style::Bold },
        Line { text: cut(&keys, columns), style },
    ]
}

/// Whom it would be taken from. The holder comes first, so that it is seen on a narrow terminal, too.
fn whom(question: &Question) -> String {
    let Question { name, holder, token, .. } = question;
    let [who, _, held, ..] = cells(holder);
    let note = match holder.note.as_str() {
        "" => String::new(),
        note => format!(" '{}'", cut(note, 30)),
    };
    format!("take from {who}{note}, after {held}, {name:?}, token {token}?")
}

/// The reason as far as it is typed in, of a long one its end, and what ends it.
fn answer(reason: &str, columns: usize) -> String {
    const PROMPT: &str = "reason: ";
    let mut typed = reason.to_owned();
    while width(PROMPT) + width(&typed) + 1 > columns && !typed.is_empty() {
        typed.remove(0);
    }
    let line = format!("{PROMPT}{typed}_");
    let hint = cut(" · enter break · esc leave it", columns.saturating_sub(width(&line)));
    line + &hint
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::model::tests::{lock, model};
    use super::*;

    fn texts(model: &Model, columns: usize, lines: usize) -> Vec<String> {
        draw(model, columns, lines, "08:30:11").into_iter().map(|line| line.text).collect()
    }

    fn crowd() -> Model {
        let mut locks: Vec<_> =
            (0..100).map(|at| lock(&format!("jobs/{at:03}"), 100, &[])).collect();
        locks.push(lock("订单/对账 夜间 with a rather long name that goes on", 7, &[70, 3]));
        model(&locks)
    }

    #[test]
    fn every_line_fits_every_terminal() {
        let mut model = crowd();
        for keys in [&[][..], &[Key::Enter], &[Key::Escape, Key::Char('b'), Key::Char('因')]] {
            keys.iter().for_each(|key| drop(model.press(*key)));
            for columns in 1..200 {
                for lines in [1, 2, 5, 15, 40] {
                    model.resize(lines.max(FRAME) - FRAME);
                    let shown = texts(&model, columns, lines);
                    assert_eq!(shown.len(), lines, "{columns}×{lines}");
                    for line in &shown {
                        assert!(width(line) <= columns, "{columns}×{lines}: {line:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_waits_longest_is_first_with_holder_and_time() {
        let shown = texts(&crowd(), 60, 15);
        assert!(shown[0].starts_with("101 locks, 2 waiting · by longest wait"), "{shown:#?}");
        assert!(shown[1].starts_with("NAME") && shown[1].contains("WAITING  FOR"), "{shown:#?}");
        assert!(shown[2].starts_with("订单/对账"), "{shown:#?}");
        assert!(shown[2].contains("  2        1m 10s  root@vm pid"), "{shown:#?}");
        assert!(!shown[1].contains("TOKEN"), "{shown:#?}");
        let wide = texts(&crowd(), 160, 40);
        assert!(wide[1].contains("TOKEN") && wide[1].contains("NOTE"), "{wide:#?}");
        assert!(wide[2].contains("1794779023296693") && wide[2].contains("backup.sh"), "{wide:#?}");
    }

    #[test]
    fn the_question_shows_the_holder_and_what_is_typed() {
        let mut model = crowd();
        model.press(Key::Char('b'));
        "on fire".chars().for_each(|c| drop(model.press(Key::Char(c))));
        for columns in [60, 160] {
            let shown = texts(&model, columns, 15);
            let asked = &shown[13];
            let who = "take from root@vm pid 4242 'backup.sh --full 夜间', after 7s, ";
            assert!(asked.starts_with(&who[..51]), "{asked}");
            assert!(shown[14].starts_with("reason: on fire_ · enter break · esc"), "{shown:#?}");
        }
        let wide = &texts(&model, 160, 15)[13];
        assert!(wide.contains("token 1794779023296693?"), "{wide}");
        // Of a reason that is too long, the end is seen.
        "and it burns down".chars().for_each(|c| drop(model.press(Key::Char(c))));
        assert!(texts(&model, 20, 15)[14].starts_with("reason:  burns down_"), "{model:?}");
    }
}
