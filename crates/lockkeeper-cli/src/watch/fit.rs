//! Text in columns of a terminal, where a Chinese character takes two.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns `text` takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// `text` in exactly `columns`: filled up with blanks, or cut and ended with `…`.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let cut = cut(text, columns);
    let missing = columns.saturating_sub(width(&cut));
    cut + &" ".repeat(missing)
}

/// At most `columns` of `text`, ending in `…` if that is not all.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let most = columns.saturating_sub(1);
    let (mut shown, mut taken) = (String::new(), 0);
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        if taken > most {
            break;
        }
        shown.push(c);
    }
    if columns > 0 {
        shown.push('…');
    }
    shown
}

/// Shares `room` among columns that would like `wanted`: all get what they want if there is enough,
/// else the modest ones do, and the others as much as each other.
pub(super) fn share(room: usize, wanted: &[usize]) -> Vec<usize> {
    let mut given = vec![0; wanted.len()];
    let mut left = room;
    let mut open: Vec<usize> = (0..wanted.len()).collect();
    while !open.is_empty() {
        let each = left / open.len();
        let modest: Vec<usize> = open.iter().copied().filter(|at| wanted[*at] <= each).collect();
        if modest.is_empty() {
            open.iter().for_each(|at| given[*at] = each);
            break;
        }
        for at in modest {
            given[at] = wanted[at];
            left -= wanted[at];
            open.retain(|other| *other != at);
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_are_never_halved() {
        assert_eq!(fit("订单/42", 7), "订单/42");
        assert_eq!(fit("订单/42", 9), "订单/42  ");
        assert_eq!(fit("订单/42", 4), "订… ");
        for columns in 0..12 {
            assert_eq!(width(&fit("a订单b对账🔒", columns)), columns);
        }
    }

    #[test]
    fn room_is_shared_and_none_is_lost_to_the_modest() {
        assert_eq!(share(100, &[10, 20, 30]), [10, 20, 30]);
        assert_eq!(share(60, &[10, 100, 100]), [10, 25, 25]);
        assert_eq!(share(0, &[10, 20]), [0, 0]);
        assert_eq!(share(10, &[]), Vec::<usize>::new());
    }
}
