//! Which columns there is room for, and how wide each may be.

use super::GAP;
use std::collections::BTreeMap;

/// How a table gets narrower.
#[derive(Debug, Default)]
pub(super) struct Fit {
    /// The columns that can be cut, each with the width that still tells something.
    pub(super) least: BTreeMap<usize, usize>,
    /// The columns that can be left out, in this order.
    pub(super) dispensable: Vec<usize>,
}

impl Fit {
    /// The columns that are shown in `room`; without a limit, all of them.
    pub(super) fn columns<const COLUMNS: usize>(
        &self,
        widths: [usize; COLUMNS],
        room: Option<usize>,
    ) -> [bool; COLUMNS] {
        let mut shown = [true; COLUMNS];
        let Some(room) = room else { return shown };
        let mut least = widths;
        for (column, least) in least.iter_mut().enumerate() {
            *least = self.least.get(&column).map_or(*least, |it| (*it).min(*least));
        }
        for column in &self.dispensable {
            if total(least, shown) <= room {
                break;
            }
            if let Some(shown) = shown.get_mut(*column) {
                *shown = false;
            }
        }
        shown
    }

    /// How wide each of the columns that are `shown` is printed: the widest that can be cut are cut first,
    /// so that none is cut more than it needs.
    pub(super) fn widths<const COLUMNS: usize>(
        &self,
        mut widths: [usize; COLUMNS],
        shown: [bool; COLUMNS],
        room: Option<usize>,
    ) -> [usize; COLUMNS] {
        let Some(room) = room else { return widths };
        while total(widths, shown) > room {
            let can_be_cut = |column: &usize| {
                let least = self.least.get(column).copied();
                shown[*column] && least.is_some_and(|least| widths[*column] > least)
            };
            // Then below what is wanted, and in the end whatever is there.
            let widest = (0..COLUMNS)
                .filter(can_be_cut)
                .max_by_key(|column| widths[*column])
                .or_else(|| {
                    let cut = |column: &usize| self.least.contains_key(column);
                    let left = (0..COLUMNS).filter(|it| shown[*it] && widths[*it] > 1);
                    left.max_by_key(|column| (cut(column), widths[*column]))
                });
            let Some(widest) = widest else { break };
            widths[widest] -= 1;
        }
        widths
    }
}

/// The width of a line.
fn total<const COLUMNS: usize>(widths: [usize; COLUMNS], shown: [bool; COLUMNS]) -> usize {
    let columns = widths.into_iter().zip(shown).filter(|(_, shown)| *shown);
    let (number, width) = columns.fold((0, 0), |(n, sum), (width, _)| (n + 1, sum + width));
    width + GAP.len() * usize::saturating_sub(number, 1)
}
