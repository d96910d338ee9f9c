//! Figures as people read them.

use super::super::cell::Cell;
use super::super::column::Unit;

/// What [`Unit::OfTtl`] is divided by, in seconds.
const TTL: f64 = 4.0;

/// A figure with its unit.
pub(super) fn figure(unit: Unit, figure: f64) -> String {
    match unit {
        Unit::Time => time(figure),
        Unit::OfTtl => format!("{:.2} ttl", figure / TTL),
        Unit::Rate | Unit::OfMean => digits(figure),
        Unit::Count => count(figure),
        Unit::Bytes => bytes(figure),
    }
}

/// A time in its own unit.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        it if it < 1e-3 => format!("{} µs", digits(it * 1e6)),
        it if it < 1.0 => format!("{} ms", digits(it * 1e3)),
        it => format!("{} s", digits(it)),
    }
}

/// How many times as long.
pub(super) fn times(ratio: f64) -> String {
    format!("{} ×", digits(ratio))
}

/// Two or three digits, as many as mean something.
pub(super) fn digits(figure: f64) -> String {
    match figure {
        it if it >= 1000.0 => count(it),
        it if it >= 99.5 => format!("{it:.0}"),
        it if it >= 9.95 => format!("{it:.1}"),
        it if it >= 0.095 => format!("{it:.2}"),
        0.0 => "0".to_owned(),
        it => format!("{it:.3}"),
    }
}

fn bytes(figure: f64) -> String {
    match figure {
        it if it < 1024.0 => format!("{it:.0} B"),
        it if it < 1024.0 * 1024.0 => format!("{} KiB", digits(it / 1024.0)),
        it => format!("{} MiB", digits(it / 1024.0 / 1024.0)),
    }
}

/// A whole number with its thousands apart, or one with a tenth.
fn count(figure: f64) -> String {
    if figure < 100.0 && figure.fract().abs() > 0.04 {
        return format!("{figure:.1}");
    }
    let plain = format!("{figure:.0}");
    let mut apart = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// What stands in a table for a cell without a figure.
pub(super) fn word(cell: &Cell) -> String {
    match cell {
        Cell::Figure(figure) => digits(*figure),
        Cell::Words(words) => words.join(", "),
        Cell::Held(_) => "held".to_owned(),
        Cell::Broken(_) => "**broken**".to_owned(),
        Cell::NotApplicable(_) => "n/a".to_owned(),
        Cell::Unknown(_) => "*unknown*".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        for (unit, value, text) in [
            (Unit::Time, 0.000_052_3, "52.3 µs"),
            (Unit::Time, 0.0042, "4.20 ms"),
            (Unit::Time, 3.98, "3.98 s"),
            (Unit::OfTtl, 4.1, "1.02 ttl"),
            (Unit::Rate, 0.0, "0"),
            (Unit::Rate, 5012.4, "5,012"),
            (Unit::Count, 2.0, "2"),
            (Unit::Count, 2.5, "2.5"),
            (Unit::Count, 12_345.0, "12,345"),
            (Unit::Bytes, 312.0, "312 B"),
            (Unit::Bytes, 4200.0, "4.10 KiB"),
            (Unit::OfMean, 1.61, "1.61"),
        ] {
            assert_eq!(figure(unit, value), text);
        }
        assert_eq!(times(123.4), "123 ×");
    }
}
