//! Percent coding: `%41` for `A`.

/// Writes every character that is not `plain` as `%` and two digits for each of its bytes. For a
/// way back `%` itself must not be plain.
pub(crate) fn encode(text: &str, plain: impl Fn(usize, char) -> bool) -> String {
    let mut coded = String::with_capacity(text.len());
    for (index, c) in text.chars().enumerate() {
        if plain(index, c) {
            coded.push(c);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in c.encode_utf8(&mut bytes).bytes() {
            coded.push('%');
            for digit in [byte >> 4, byte & 15] {
                coded.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
    coded
}

/// Reads it back; `None` when a `%` is not followed by two hexadecimal digits, or what they spell
/// is not UTF-8.
pub(crate) fn decode(coded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(coded.len());
    let mut rest = coded.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2)?;
        // Not by `from_str_radix` alone, which takes a sign.
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = digit(digits[0])? * 16 + digit(digits[1])?;
        bytes.push(u8::try_from(byte).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bad_escape_is_refused() {
        for coded in ["%", "%4", "%zz", "%+1", "%ff", "a%"] {
            assert_eq!(decode(coded), None, "{coded}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(text in any::<String>()) {
            let coded = encode(&text, |_, c| c.is_ascii_alphanumeric());
            prop_assert!(coded.bytes().all(|byte| byte == b'%' || byte.is_ascii_alphanumeric()));
            prop_assert_eq!(decode(&coded), Some(text));
        }
    }
}
