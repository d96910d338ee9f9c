//! The hash FNV-1a, for what has to be told apart and not kept from anyone.

/// The offset basis and the prime of 128 bits, as the authors of FNV give them.
const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

pub(crate) fn hash_128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_hash_that_others_compute() {
        assert_eq!(hash_128(b""), BASIS);
        assert_eq!(hash_128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_ne!(hash_128(b"ab"), hash_128(b"ba"));
    }
}
