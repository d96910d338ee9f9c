//! What the engines call the locks of names: numbers and words made by a cryptographic hash, so
//! that no two names meet by chance or by intent.

use crate::backend::Name;
use sha2::{Digest, Sha256};

/// The hash of a name among the locks of one table.
fn digest(space: &str, name: &Name) -> [u8; 32] {
    let mut hash = Sha256::new();
    // Neither has a zero byte in it, so the two cannot be told apart wrongly.
    hash.update(space.as_bytes());
    hash.update([0]);
    hash.update(name.as_str().as_bytes());
    hash.finalize().into()
}

/// The number that PostgreSQL knows the lock of `name` by. Two names of a million have the same with
/// a chance of one in 10^7; they would then keep each other out, and nothing worse.
#[cfg(feature = "postgres")]
pub(super) fn number(space: &str, name: &Name) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = digest(space, name);
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The 16 bytes that stand for the lock of `name` in MariaDB and MySQL.
#[cfg(feature = "mysql")]
pub(super) fn sixteen(space: &str, name: &Name) -> [u8; 16] {
    let digest = digest(space, name);
    let mut sixteen = [0; 16];
    sixteen.copy_from_slice(&digest[..16]);
    sixteen
}

#[cfg(all(test, feature = "mysql", feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_pinned() {
        let name = Name::new("orders/42").unwrap();
        assert_eq!(number("lockkeeper", &name), 5_710_818_240_104_014_473);
        assert_eq!(sixteen("lockkeeper", &name)[..4], [79, 64, 230, 238]);
        assert_ne!(number("lockkeeper", &name), number("other", &name));
    }
}
