//! Aligned columns, by the width that characters have on a screen.

mod fit;
mod look;

pub(crate) use look::Look;

use crate::text::{cut, width};
use fit::Fit;

const GAP: &str = "  ";
const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";
const PLAIN: &str = "\u{1b}[0m";

/// Lays out `rows` under `titles`, each line after `indent`, without trailing blanks.
pub(crate) fn lay_out<const COLUMNS: usize>(
    indent: &str,
    titles: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    Table::new(indent, titles).lay_out(rows)
}

/// A table of which some rows come later. Its columns get wider where those need it.
pub(crate) struct Table<const COLUMNS: usize> {
    indent: String,
    titles: [String; COLUMNS],
    /// The widest cell of each column so far.
    widths: [usize; COLUMNS],
    look: Look,
    fit: Fit,
    /// Cells that are red.
    alarming: Option<&'static str>,
    /// Which columns are printed; known when the first rows are.
    shown: Option<[bool; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(indent: &str, titles: [&str; COLUMNS]) -> Self {
        Self {
            indent: indent.to_owned(),
            widths: titles.map(width),
            titles: titles.map(str::to_owned),
            look: Look::default(),
            fit: Fit::default(),
            alarming: None,
            shown: None,
        }
    }

    /// Fits the table to where it is printed.
    pub(crate) fn look(self, look: Look) -> Self {
        Self { look, ..self }
    }

    /// A column that is cut where the table is too wide, to no less than this.
    pub(crate) fn cut(mut self, title: &str, least: usize) -> Self {
        let column = self.column(title);
        self.fit.least.insert(column, least);
        self
    }

    /// Columns that are left out where cutting is not enough, the first one first.
    pub(crate) fn leave_out(mut self, titles: &[&str]) -> Self {
        self.fit.dispensable = titles.iter().map(|title| self.column(title)).collect();
        self
    }

    /// A cell that is red, where there are colours.
    pub(crate) fn alarming(self, cell: &'static str) -> Self {
        Self { alarming: Some(cell), ..self }
    }

    fn column(&self, title: &str) -> usize {
        let found = self.titles.iter().position(|it| it == title);
        // A title that is none cuts nothing.
        found.unwrap_or(COLUMNS)
    }

    /// The next rows, the first ones under the titles.
    pub(crate) fn lay_out(&mut self, rows: &[[String; COLUMNS]]) -> String {
        for row in rows {
            for (most, cell) in self.widths.iter_mut().zip(row) {
                *most = (*most).max(width(cell));
            }
        }
        let room = self.look.width.map(|room| room.saturating_sub(width(&self.indent)));
        let is_first = self.shown.is_none();
        let shown = *self.shown.get_or_insert_with(|| self.fit.columns(self.widths, room));
        let widths = self.fit.widths(self.widths, shown, room);
        let mut text = String::new();
        if is_first {
            let style = |_: &str| Some(BOLD);
            text += &self.line(&self.titles, shown, widths, style);
        }
        for row in rows {
            let style = |cell: &str| (self.alarming == Some(cell)).then_some(RED);
            text += &self.line(row, shown, widths, style);
        }
        text
    }

    /// The titles of the columns for which there is no room.
    pub(crate) fn left_out(&self) -> Vec<&str> {
        let shown = self.shown.unwrap_or([true; COLUMNS]);
        let titles = self.titles.iter().zip(shown).filter(|(_, shown)| !shown);
        titles.map(|(title, _)| title.as_str()).collect()
    }

    fn line(
        &self,
        cells: &[String; COLUMNS],
        shown: [bool; COLUMNS],
        widths: [usize; COLUMNS],
        style: impl Fn(&str) -> Option<&'static str>,
    ) -> String {
        let mut line = self.indent.clone();
        // Blanks are added when something follows them.
        let mut blanks = 0;
        for ((cell, most), _) in cells.iter().zip(widths).zip(shown).filter(|(_, shown)| *shown) {
            let text = cut(cell, most);
            if !text.trim_end().is_empty() {
                line += &" ".repeat(blanks);
                blanks = 0;
                match style(cell).filter(|_| self.look.color) {
                    Some(style) => line += &format!("{style}{text}{PLAIN}"),
                    None => line += &text,
                }
                blanks += most - width(&text);
            } else {
                blanks += most;
            }
            blanks += GAP.len();
        }
        let mut line = line.trim_end().to_owned();
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_at_their_last_letter() {
        let rows = [["ü".into(), "1".into()], ["long".into(), String::new()]];
        assert_eq!(lay_out(" ", ["A", "B"], &rows), " A     B\n ü     1\n long\n");
    }

    #[test]
    fn a_character_that_is_two_columns_wide_counts_as_two() {
        let rows = [["订单/对账".into(), "1".into()], ["b名".into(), "2".into()]];
        let text = lay_out("", ["NAME", "N"], &rows);
        assert_eq!(text, "NAME       N\n订单/对账  1\nb名        2\n");
    }

    fn narrow(room: usize) -> String {
        let look = Look { width: Some(room), color: false };
        let mut table = Table::new("", ["NAME", "TOKEN", "NOTE"]).look(look);
        table = table.cut("NAME", 5).cut("NOTE", 4).leave_out(&["TOKEN", "NOTE"]);
        let rows = [["orders/42".into(), "123456".into(), "backup.sh --full".into()]];
        table.lay_out(&rows)
    }

    #[test]
    fn what_is_too_wide_is_cut_and_then_left_out() {
        let lines = |room| narrow(room).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(40)[1], "orders/42  123456  backup.sh --full");
        assert_eq!(lines(30)[1], "orders/42  123456  backup.sh …");
        assert_eq!(lines(24)[1], "orders…  123456  backup…");
        assert_eq!(lines(17)[1], "orders/…  backup…");
        assert_eq!(lines(10), ["NAME", "orders/42"]);
        assert_eq!(lines(4)[1], "ord…", "cut further if nothing else is left");
        for room in 1..60 {
            assert!(narrow(room).lines().all(|line| width(line) <= room), "{}", narrow(room));
        }
    }

    #[test]
    fn colours_take_no_room() {
        let look = Look { width: None, color: true };
        let mut table = Table::new("", ["NAME", "EXPIRES"]).look(look).alarming("overdue");
        let text = table.lay_out(&[["x".into(), "overdue".into()]]);
        let plain = text.replace(BOLD, "").replace(RED, "").replace(PLAIN, "");
        assert_eq!(plain, "NAME  EXPIRES\nx     overdue\n");
        assert!(text.contains("\u{1b}[31moverdue\u{1b}[0m"), "{text:?}");
        assert!(text.starts_with("\u{1b}[1mNAME\u{1b}[0m"), "{text:?}");
    }

    #[test]
    fn rows_that_come_later_have_the_columns_of_the_first() {
        let look = Look { width: Some(16), color: false };
        let mut table =
            Table::new("", ["NAME", "TOKEN"]).look(look).cut("NAME", 4).leave_out(&["TOKEN"]);
        assert_eq!(table.lay_out(&[["a".into(), "12".into()]]), "NAME  TOKEN\na     12\n");
        let later = table.lay_out(&[["a-very-long-name".into(), "12".into()]]);
        assert_eq!(later, "a-very-l…  12\n");
    }
}
