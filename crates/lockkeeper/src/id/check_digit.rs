//! One more digit, by which a mistake in the others is noticed: the scheme of Damm, which notices every
//! single wrong digit and every two neighbours that changed places.

/// A quasigroup without fixed points below its diagonal: row is the state, column the digit.
const TABLE: [[u8; 10]; 10] = [
    [0, 3, 1, 7, 5, 9, 8, 6, 4, 2],
    [7, 0, 9, 2, 1, 5, 4, 8, 6, 3],
    [4, 2, 0, 6, 8, 7, 1, 3, 5, 9],
    [1, 7, 5, 0, 9, 8, 3, 4, 2, 6],
    [6, 1, 2, 3, 0, 4, 5, 9, 7, 8],
    [3, 6, 7, 4, 2, 0, 9, 5, 8, 1],
    [5, 8, 6, 9, 7, 2, 0, 1, 3, 4],
    [8, 9, 4, 5, 3, 6, 2, 0, 1, 7],
    [9, 4, 3, 8, 6, 1, 7, 2, 0, 5],
    [2, 5, 8, 1, 4, 3, 6, 7, 9, 0],
];

/// The check digit of a number.
pub(crate) fn of(number: &str) -> u8 {
    let digits = number.bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0');
    digits.fold(0, |state, digit| TABLE[usize::from(state)][usize::from(digit)])
}

/// The number without its check digit, if that is right.
pub(crate) fn checked(text: &str) -> Option<&str> {
    let digits = text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits && of(text) == 0).then(|| &text[..text.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_the_scheme_of_damm() {
        assert_eq!(of("572"), 4);
        assert_eq!(checked("5724"), Some("572"));
        assert_eq!(checked("5727"), None);
        assert_eq!(checked("x"), None);
    }

    proptest! {
        #[test]
        fn one_mistake_is_noticed(number in 10u64..u64::MAX, at: prop::sample::Index, other in 1u8..10) {
            let right = format!("{number}{}", of(&number.to_string()));
            prop_assert!(checked(&right).is_some());
            let at = at.index(right.len());
            let mut wrong = right.clone().into_bytes();
            wrong[at] = b'0' + (wrong[at] - b'0' + other) % 10;
            prop_assert!(checked(std::str::from_utf8(&wrong).unwrap()).is_none());
            let mut swapped = right.clone().into_bytes();
            let next = (at + 1).min(right.len() - 1);
            swapped.swap(at, next);
            let noticed = checked(std::str::from_utf8(&swapped).unwrap()).is_none();
            prop_assert!(noticed || swapped == right.as_bytes());
        }
    }
}
