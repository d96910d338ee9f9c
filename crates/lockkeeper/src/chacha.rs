//! The ChaCha20 block function, as a source of numbers that nobody can foretell.

/// "expand 32-byte k", as the cipher has it.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The first 128 bits of block `counter` under `key`. One who knows any number of blocks knows
/// nothing of the others.
pub(crate) fn number(key: &[u32; 8], counter: u64) -> u128 {
    let [low, high] = [counter, counter >> 32].map(|half| (half & 0xffff_ffff) as u32);
    let mut start = [0; 16];
    start[..4].copy_from_slice(&CONSTANTS);
    start[4..12].copy_from_slice(key);
    start[12..14].copy_from_slice(&[low, high]);
    let mut state = start;
    for _ in 0..10 {
        for column in 0..4 {
            quarter_round(&mut state, [column, 4 + column, 8 + column, 12 + column]);
        }
        for at in 0..4 {
            let (b, c, d) = (4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4);
            quarter_round(&mut state, [at, b, c, d]);
        }
    }
    let word = |at: usize| u128::from(state[at].wrapping_add(start[at]));
    (0..4).fold(0, |number, at| number | word(at) << (32 * at))
}

fn quarter_round(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    for (left, right, add, turn) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        state[left] = state[left].wrapping_add(state[right]);
        state[add] = (state[add] ^ state[left]).rotate_left(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_cipher() {
        // The keystream of the all-zero key and nonce, blocks 0 and 1.
        let first = [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90];
        let second = [0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a];
        for (counter, expected) in [(0, first), (1, second)] {
            let bytes = number(&[0; 8], counter).to_le_bytes();
            assert_eq!(bytes[..8], expected, "block {counter}");
        }
        let key = std::array::from_fn(|at| u32::try_from(at).unwrap());
        assert_ne!(number(&key, 0), number(&[0; 8], 0));
        assert_ne!(number(&key, 1 << 32), number(&key, 0));
    }
}
