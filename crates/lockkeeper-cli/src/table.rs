//! Aligned columns.

const GAP: &str = "  ";

/// Lays out `rows` under `titles`, each line after `indent`, without trailing blanks.
pub(crate) fn lay_out<const COLUMNS: usize>(
    indent: &str,
    titles: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    let mut widths = titles.map(width);
    for row in rows {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = (*most).max(width(cell));
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&titles.map(str::to_owned)).chain(rows) {
        let mut line = indent.to_owned();
        for (cell, most) in row.iter().zip(widths) {
            line += cell;
            line += &" ".repeat(most - width(cell));
            line += GAP;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_at_their_last_letter() {
        let rows = [["ü".into(), "1".into()], ["long".into(), String::new()]];
        assert_eq!(lay_out(" ", ["A", "B"], &rows), " A     B\n ü     1\n long\n");
    }
}
