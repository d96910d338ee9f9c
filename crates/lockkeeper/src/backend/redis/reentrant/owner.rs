//! From an owner to its field in the lock.

use crate::backend::Owner;

/// How many hexadecimal digits at the end of an ordinary owner's id count the claims of its keeper.
const COUNTER: usize = 12;
/// How many an ordinary owner's id ends in.
const DIGITS: usize = 32;

/// `<uuid>:<number>`, as Redisson writes its own: the same for the same owner wherever it is.
///
/// An ordinary id ends in what is random about its keeper and a counter: the one becomes the UUID,
/// together with the label, the other the number. Redisson compares fields and takes none apart,
/// so the hash is there for the look alone; but two owners must not share a field, so everything
/// of the id goes into it. Never `mode`, and never with `:write` at the end.
pub(super) fn field_of(owner: &Owner) -> String {
    let id = owner.id();
    let split = id.len().checked_sub(COUNTER).filter(|_| is_ordinary(id));
    match split.and_then(|at| id.split_at_checked(at)) {
        Some((stem, counter)) => {
            let number = u64::from_str_radix(counter, 16).unwrap_or_default();
            format!("{}:{number}", uuid("keeper\0", stem))
        }
        None => format!("{}:0", uuid("owner\0", id)),
    }
}

/// Whether the id is one that a keeper made: it ends in 32 lower-case hexadecimal digits.
fn is_ordinary(id: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let start = id.len().checked_sub(DIGITS);
    start.and_then(|start| id.get(start..)).is_some_and(|digits| digits.chars().all(digit))
}

/// Shaped as a random UUID.
fn uuid(kind: &str, text: &str) -> String {
    let digest = sha1_smol::Sha1::from(format!("{kind}{text}")).digest().bytes();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn field(id: &str) -> String {
        field_of(&Owner::new(id).unwrap())
    }

    #[test]
    fn it_is_pinned_since_processes_of_two_versions_must_agree() {
        let prefix = "0123456789abcdef0123";
        assert_eq!(
            field(&format!("{prefix}00000000002a")),
            "49f7d739-6ea2-4f99-9de7-aa078f50d512:42"
        );
        assert_eq!(field("batch job"), "c1ac149a-8cb9-498c-bec5-e4f58e64897e:0");
    }

    /// As the threads of one Redisson client do.
    #[test]
    fn owners_of_one_keeper_share_the_uuid() {
        let (one, two) = (field(&format!("{}1", "a".repeat(31))), field(&"a".repeat(32)));
        assert_ne!(one, two);
        assert_eq!(one.split(':').next(), two.split(':').next());
    }

    /// Two owners with one field would enter each other's locks.
    #[test]
    fn no_two_owners_share_a_field() {
        let digits = "0".repeat(32);
        let ids = [
            digits.clone(),
            "0".repeat(20),
            "0".repeat(31),
            "0".repeat(33),
            format!("a-{digits}"),
            format!("b-{digits}"),
            format!("a-{}", "0".repeat(20)),
            "A".repeat(32),
            "a".repeat(32),
            "mode".into(),
            "x:write".into(),
            "é".repeat(20),
        ];
        let fields: HashSet<_> = ids.iter().map(|id| field(id)).collect();
        assert_eq!(fields.len(), ids.len());
        assert!(fields.iter().all(|field| !field.ends_with(":write") && field != "mode"));
    }
}
