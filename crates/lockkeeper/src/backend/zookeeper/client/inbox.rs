//! Bytes as they arrive, packets as they are complete.
//!
//! TCP knows no packets: a read may end in the middle of one, or bring several. Every packet of the
//! protocol begins with its length in four bytes.

use std::io;

/// The longest packet that is accepted. ZooKeeper takes no more than a megabyte for a node; a list
/// of children can be longer than that.
const LONGEST: usize = 64 << 20;

/// What was received and not processed yet.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// How much of it has been returned as packets.
    read: usize,
}

impl Inbox {
    /// Where new bytes are appended.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The next packet that is complete, without its length.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let rest = &self.bytes[self.read..];
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        // A negative length becomes one that is too long.
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(io::Error::other("an answer that is too long"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.read + 4;
        self.read = start + length;
        Ok(Some(&self.bytes[start..self.read]))
    }

    /// Drops the packets that were returned; once per read, not once per packet.
    pub(super) fn discard_read(&mut self) {
        self.bytes.drain(..self.read);
        self.read = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_when_they_are_complete() {
        let mut inbox = Inbox::default();
        inbox.buffer().extend([0, 0, 0, 1, 7, 0, 0, 0, 2, 8]);
        assert_eq!(inbox.next().unwrap(), Some(&[7][..]));
        assert_eq!(inbox.next().unwrap(), None);
        inbox.discard_read();
        inbox.buffer().extend([9, 0, 0]);
        assert_eq!(inbox.next().unwrap(), Some(&[8, 9][..]));
        assert_eq!(inbox.next().unwrap(), None);
    }

    #[test]
    fn a_length_that_makes_no_sense_is_an_error() {
        for length in [[255; 4], [127, 255, 255, 255]] {
            let mut inbox = Inbox::default();
            inbox.buffer().extend(length);
            assert!(inbox.next().is_err());
        }
    }
}
