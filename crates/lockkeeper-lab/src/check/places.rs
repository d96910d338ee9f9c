//! A quick way from a claim's number to its place.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// From numbers of claims to places. Every event of a history looks one up, and the numbers come
/// from our own clients: nobody gains by choosing them badly, so a multiplication will do.
pub(crate) type Places = HashMap<u64, usize, BuildHasherDefault<Spread>>;

/// Spreads numbers that follow each other.
#[derive(Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio; the rotation brings the well mixed high bits down to where the table
        // looks first.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
