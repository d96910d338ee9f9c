//! A lock as an ordered queue of claims: those at its head hold it.
//!
//! Pure, and the same for every store that keeps such a queue. Whether a claim holds depends only
//! on those before it, and they only ever leave: so a claim that was found to hold goes on holding
//! for as long as it is there.
//!
//! A store that grants one claim after another, and lets owners enter again, asks [`fits`] for each
//! of them. A store that sees the whole queue at once asks for the [`place`] of its own claim.

use super::Mode;
use std::ops::Range;

/// How one claim stands among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// It holds the name.
    Holds,
    /// Others are before it.
    Waits {
        /// Its place among those who wait, counted from 1.
        number: usize,
        /// Which of those before it to watch: at least one of them goes before it is let in, and
        /// as few others as can be are woken by the same one.
        behind: Range<usize>,
    },
}

/// Whether a claim of this mode can stand beside `holders`, given as mode and owner.
///
/// The claims of one owner count as one: a permit that was entered again takes no second place.
///
/// ```
/// use lockkeeper::Mode;
/// use lockkeeper::backend::queue::fits;
///
/// let held = [(Mode::Permit { of: 2 }, "alice"), (Mode::Permit { of: 2 }, "alice")];
/// assert!(fits(Mode::Permit { of: 2 }, held));
/// assert!(!fits(Mode::Exclusive, held));
/// ```
pub fn fits<K: PartialEq>(wanted: Mode, holders: impl IntoIterator<Item = (Mode, K)>) -> bool {
    let mut owners = Vec::new();
    let mut limit = u32::MAX;
    for (mode, owner) in holders {
        match (wanted, mode) {
            (Mode::Shared, Mode::Shared) => {}
            (Mode::Permit { of }, Mode::Permit { of: theirs }) => {
                limit = limit.min(of).min(theirs);
                if !owners.contains(&owner) {
                    owners.push(owner);
                }
            }
            _ => return false,
        }
    }
    owners.len() < places(limit)
}

/// How many at the head of a queue of such claims hold the name.
pub fn holders(modes: impl IntoIterator<Item = Mode>) -> usize {
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

/// How the claim at `index` stands; `None` where there is none.
pub fn place(modes: &[Mode], index: usize) -> Option<Place> {
    let mode = *modes.get(index)?;
    let holders = holders(modes.iter().copied());
    if index < holders {
        return Some(Place::Holds);
    }
    Some(Place::Waits { number: index - holders + 1, behind: behind(&modes[..index], mode) })
}

fn behind(before: &[Mode], mode: Mode) -> Range<usize> {
    let together = |other: &Mode| match mode {
        Mode::Exclusive => false,
        Mode::Shared | Mode::Permit { .. } => {
            std::mem::discriminant(other) == std::mem::discriminant(&mode)
        }
    };
    match before.iter().rposition(|other| !together(other)) {
        Some(last) => last..last + 1,
        // Those before it are permits too, and too many. Of the last `of` one must go before it
        // is among the first `of`, whichever of the others goes first.
        None => {
            let of = if let Mode::Permit { of } = mode { places(of) } else { 1 };
            before.len().saturating_sub(of)..before.len()
        }
    }
}

fn places(of: u32) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

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
            assert_eq!(holders(modes.iter().copied()), expected, "{modes:?}");
        }
        assert_eq!(place(&[WRITER], 1), None);
    }

    #[test]
    fn one_waits_behind_as_few_as_can_be() {
        let behind = |modes: &[Mode], index| match place(modes, index) {
            Some(Place::Waits { behind, .. }) => behind,
            other => panic!("{other:?}"),
        };
        assert_eq!(behind(&[WRITER, WRITER, WRITER], 2), 1..2);
        assert_eq!(behind(&[WRITER, READER, READER], 2), 0..1);
        assert_eq!(behind(&[READER, READER, WRITER], 2), 1..2);
        assert_eq!(behind(&[permit(2), permit(2), permit(2), permit(2)], 3), 1..3);
        assert_eq!(behind(&[READER, permit(2)], 1), 0..1);
    }

    #[test]
    fn modes_fit_as_documented() {
        let writer = [(Mode::Exclusive, 1)];
        let readers = [(Mode::Shared, 1), (Mode::Shared, 2)];
        let permits = [(Mode::Permit { of: 3 }, 1), (Mode::Permit { of: 3 }, 2)];
        assert!(fits::<u64>(Mode::Exclusive, []));
        assert!(!fits(Mode::Exclusive, writer));
        assert!(!fits(Mode::Exclusive, readers));
        assert!(!fits(Mode::Exclusive, permits));
        assert!(!fits(Mode::Shared, writer));
        assert!(fits(Mode::Shared, readers));
        assert!(!fits(Mode::Shared, permits));
        assert!(fits(Mode::Permit { of: 3 }, permits));
        assert!(!fits(Mode::Permit { of: 2 }, permits), "the smaller limit counts");
        assert!(!fits(
            Mode::Permit { of: 9 },
            [permits[0], permits[1], permits[1], (Mode::Permit { of: 3 }, 3)]
        ));
        assert!(!fits(Mode::Permit { of: 9 }, readers));
    }

    #[test]
    fn claims_of_one_owner_count_once() {
        let same = [(Mode::Permit { of: 2 }, 1), (Mode::Permit { of: 2 }, 1)];
        assert!(fits(Mode::Permit { of: 2 }, same));
    }

    fn mode() -> impl Strategy<Value = Mode> {
        prop_oneof![
            Just(WRITER),
            Just(READER),
            (1..4_u32).prop_map(permit),
            (1..4_u32).prop_map(permit)
        ]
    }

    type Queue = Vec<(usize, Mode)>;

    /// Whether the claim with this id holds, and whom it watches if not.
    fn look(queue: &Queue, id: usize) -> (bool, HashSet<usize>) {
        let modes: Vec<Mode> = queue.iter().map(|(_, mode)| *mode).collect();
        let index = queue.iter().position(|(other, _)| *other == id).unwrap();
        match place(&modes, index).unwrap() {
            Place::Holds => (true, HashSet::new()),
            Place::Waits { behind, .. } => (false, behind.map(|index| queue[index].0).collect()),
        }
    }

    proptest! {
        /// To see the whole queue and to let in one after another comes to the same.
        #[test]
        fn the_head_is_what_fits_one_by_one(modes in prop::collection::vec(mode(), 0..10)) {
            let count = modes.iter().enumerate().take_while(|(index, mode)| {
                let before = modes[..*index].iter().enumerate();
                fits(**mode, before.map(|(number, mode)| (*mode, number)))
            });
            prop_assert_eq!(count.count(), holders(modes.iter().copied()));
        }

        /// Any may go, in any order: nobody comes to hold it asleep, and one that holds it
        /// goes on holding it.
        #[test]
        fn nobody_is_let_in_asleep(
            modes in prop::collection::vec(mode(), 1..10),
            leaving in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let mut queue: Queue = modes.into_iter().enumerate().collect();
            let mut believed: HashMap<usize, (bool, HashSet<usize>)> =
                queue.iter().map(|(id, _)| (*id, look(&queue, *id))).collect();
            for which in leaving {
                if queue.is_empty() {
                    break;
                }
                let (gone, _) = queue.remove(which.index(queue.len()));
                believed.remove(&gone);
                for (id, belief) in &mut believed {
                    if belief.1.contains(&gone) {
                        *belief = look(&queue, *id);
                    }
                    prop_assert_eq!(belief.0, look(&queue, *id).0, "{}", id);
                }
            }
        }

        #[test]
        fn a_permit_that_goes_wakes_no_more_than_there_are(
            of in 1..4_u32,
            count in 1..12_usize,
            which in any::<prop::sample::Index>(),
        ) {
            let queue: Queue = (0..count).map(|id| (id, permit(of))).collect();
            let gone = which.index(count);
            let woken = (0..count).filter(|id| look(&queue, *id).1.contains(&gone)).count();
            prop_assert!(woken <= places(of), "{} woken", woken);
        }
    }
}
