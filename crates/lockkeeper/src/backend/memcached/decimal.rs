//! Numbers as text, without `format!`: a fifth of the instructions of a lock and its release went into it.

/// The digits of the greatest `u64`.
const MOST_DIGITS: usize = 20;

/// Appends `number` in decimal digits.
pub(super) fn push(bytes: &mut Vec<u8>, number: u64) {
    let mut digits = [0; MOST_DIGITS];
    let (mut first, mut rest) = (MOST_DIGITS, number);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    bytes.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_the_standard_library_writes_it(number in any::<u64>(), small in 0..2000_u64) {
            for number in [number, small, 0, u64::MAX] {
                let mut bytes = b"x".to_vec();
                push(&mut bytes, number);
                prop_assert_eq!(String::from_utf8(bytes).unwrap(), format!("x{number}"));
            }
        }
    }
}
