//! Choices that can be reproduced.

/// A small random number generator: the same seed gives the same choices.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The choices of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Never zero: xorshift cannot leave zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `of`.
    pub fn roll(&mut self, of: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % of.max(1)
    }
}
