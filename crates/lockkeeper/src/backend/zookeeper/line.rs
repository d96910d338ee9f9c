//! The claims on a name, in order: those at the head hold it.

use super::layout::Entry;
use crate::backend::Mode;

/// How one claim stands among the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It holds the name.
    Holds,
    Waits {
        /// Its place among those who wait, counted from 1.
        place: usize,
        /// The nodes whose going may let it in.
        behind: Vec<String>,
        /// Nobody can come before it that is not there yet.
        settled: bool,
    },
    /// Its node is not there.
    Absent,
}

/// How many at the head hold the name.
pub(super) fn holders(entries: &[Entry]) -> usize {
    admitted(entries.iter().map(|entry| entry.mode))
}

/// How many at the head of a queue of such claims hold the name.
fn admitted(modes: impl Iterator<Item = Mode>) -> usize {
    let (mut first, mut limit, mut count) = (None, usize::MAX, 0);
    for mode in modes {
        let fits = match (*first.get_or_insert(mode), mode) {
            _ if count == 0 => true,
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Permit { .. }, Mode::Permit { of }) => count < limit.min(places(of)),
            _ => false,
        };
        if !fits {
            break;
        }
        if let Mode::Permit { of } = mode {
            limit = limit.min(places(of));
        }
        count += 1;
    }
    count
}

/// Puts the claim with the node `own` behind those that have its number. ZooKeeper gives a number
/// once, but a node made by hand may have any: it is not known to have come later.
pub(super) fn give_way(entries: &mut [Entry], own: &str) {
    if let Some(index) = entries.iter().position(|entry| entry.node == own) {
        let number = entries[index].number;
        let same = entries[index..].iter().take_while(|entry| entry.number == number).count();
        entries[index..index + same].rotate_left(1);
    }
}

/// How the claim with the node `own` stands.
pub(super) fn standing(entries: &[Entry], own: &str) -> Standing {
    let Some(index) = entries.iter().position(|entry| entry.node == own) else {
        return Standing::Absent;
    };
    let holders = holders(entries);
    if index < holders {
        return Standing::Holds;
    }
    let before = &entries[..index];
    let behind = behind(before, entries[index].mode);
    // A number that may be there twice can have another before us that we have not seen.
    let doubled = entries[..=index].windows(2).any(|pair| pair[0].number == pair[1].number);
    let settled = !doubled && !before.iter().any(|entry| entry.may_be_doubled);
    Standing::Waits { place: index - holders + 1, behind, settled }
}

/// Whom a claim of this mode is behind: at least one of them goes before it is let in, and as few
/// others as can be are woken by the same one.
fn behind(before: &[Entry], mode: Mode) -> Vec<String> {
    let nodes = |entries: &[Entry]| entries.iter().map(|entry| entry.node.clone()).collect();
    let together = |entry: &Entry| match mode {
        Mode::Exclusive => false,
        Mode::Shared => entry.mode == Mode::Shared,
        Mode::Permit { .. } => matches!(entry.mode, Mode::Permit { .. }),
    };
    match before.iter().rposition(|entry| !together(entry)) {
        Some(last) => nodes(&before[last..=last]),
        // Those before us are permits too, and too many. Of the last `of` one must go before we
        // are among the first `of`, whoever of the others goes first.
        None => {
            let of = if let Mode::Permit { of } = mode { places(of) } else { 1 };
            nodes(&before[before.len().saturating_sub(of)..])
        }
    }
}

/// Whether a claim of this mode holds the name that has these before it. If it does with them, it
/// does with fewer of them.
pub(super) fn holds_behind(before: impl Iterator<Item = Mode>, mode: Mode) -> bool {
    let mut length = 0;
    let held = admitted(before.chain([mode]).inspect(|_| length += 1));
    held == length
}

fn places(of: u32) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn line(modes: &[Mode]) -> Vec<Entry> {
        let entry = |(index, mode): (usize, &Mode)| Entry {
            node: index.to_string(),
            mode: *mode,
            number: i32::try_from(index).unwrap(),
            may_be_doubled: false,
        };
        modes.iter().enumerate().map(entry).collect()
    }

    const WRITER: Mode = Mode::Exclusive;
    const READER: Mode = Mode::Shared;

    fn permit(of: u32) -> Mode {
        Mode::Permit { of }
    }

    #[test]
    fn the_head_holds() {
        for (modes, expected) in [
            (vec![], 0),
            (vec![WRITER, WRITER], 1),
            (vec![READER, READER, WRITER, READER], 2),
            (vec![WRITER, READER], 1),
            (vec![permit(2), permit(2), permit(2)], 2),
            (vec![permit(5), permit(2), permit(5)], 2),
            (vec![permit(1), permit(5)], 1),
            (vec![permit(3), READER, permit(3)], 1),
        ] {
            assert_eq!(holders(&line(&modes)), expected, "{modes:?}");
        }
    }

    #[test]
    fn of_equal_numbers_ours_is_the_last() {
        let mut entries = line(&[WRITER, WRITER, WRITER, WRITER]);
        entries[1].number = 2;
        entries[2].number = 2;
        for own in ["1", "2"] {
            give_way(&mut entries, own);
            let Standing::Waits { place: 2, behind, settled: false } = standing(&entries, own)
            else {
                panic!("{own}: {entries:?}");
            };
            assert_ne!(behind, [own]);
        }
        give_way(&mut entries, "0");
        assert_eq!(standing(&entries, "0"), Standing::Holds);
    }

    #[test]
    fn one_waits_behind_as_few_as_can_be() {
        let behind = |modes: &[Mode], own: &str| match standing(&line(modes), own) {
            Standing::Waits { behind, .. } => behind,
            other => panic!("{other:?}"),
        };
        assert_eq!(behind(&[WRITER, WRITER, WRITER], "2"), ["1"]);
        assert_eq!(behind(&[WRITER, READER, READER], "2"), ["0"]);
        assert_eq!(behind(&[READER, READER, WRITER], "2"), ["1"]);
        assert_eq!(behind(&[permit(2), permit(2), permit(2), permit(2)], "3"), ["1", "2"]);
        assert_eq!(behind(&[READER, permit(2)], "1"), ["0"]);
    }

    fn mode() -> impl Strategy<Value = Mode> {
        prop_oneof![
            Just(WRITER),
            Just(READER),
            (1..4_u32).prop_map(permit),
            (1..4_u32).prop_map(permit)
        ]
    }

    proptest! {
        /// Whoever goes, in whatever order: nobody comes to hold it asleep, and whoever holds it
        /// goes on holding it.
        #[test]
        fn nobody_is_let_in_asleep(
            modes in prop::collection::vec(mode(), 1..10),
            leaving in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let mut entries = line(&modes);
            let look = |entries: &[Entry], node: &String| standing(entries, node);
            let mut believed: HashMap<String, Standing> =
                entries.iter().map(|e| (e.node.clone(), look(&entries, &e.node))).collect();
            for which in leaving {
                if entries.is_empty() {
                    break;
                }
                let gone = entries.remove(which.index(entries.len())).node;
                believed.remove(&gone);
                for (node, standing) in &mut believed {
                    let woken = matches!(
                        standing, Standing::Waits { behind, .. } if behind.contains(&gone)
                    );
                    if woken {
                        *standing = look(&entries, node);
                    }
                    let holds = look(&entries, node) == Standing::Holds;
                    prop_assert_eq!(*standing == Standing::Holds, holds, "{}", node);
                }
            }
        }
    }
}
