//! A fast map from a claim's number to its index.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// From claim numbers to indexes. Every event of a history needs a lookup, and the numbers come
/// from our own clients: no attacker chooses them, so a multiplication is enough of a hash.
pub(crate) type Places = HashMap<u64, usize, BuildHasherDefault<Spread>>;

/// Hashes consecutive numbers.
#[derive(Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio; the rotation moves the well mixed high bits down to where the table
        // looks first.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
