//! Jute, the encoding of ZooKeeper's protocol: big-endian numbers, and texts behind their length.
//!
//! | | encoding |
//! |---|---|
//! | int, long | 4 or 8 bytes |
//! | bool | one byte |
//! | buffer, string | its length as an int, then its bytes; a length of -1 is a null |
//! | vector | its length as an int, then its elements |
//!
//! A packet is its length as an int, then a header, then a body. The header of a request is a number
//! that the answer repeats (`xid`) and an operation code; that of an answer is the number, the last
//! transaction that the server has seen (`zxid`) and an error code.

/// A packet that is being encoded, with room for its length in front.
#[derive(Debug, Clone)]
pub(super) struct Packet(Vec<u8>);

impl Packet {
    pub(super) fn new() -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend([0; 4]);
        Self(bytes)
    }

    /// A request: `xid` comes back with its answer.
    pub(super) fn request(xid: i32, code: i32) -> Self {
        let mut packet = Self::new();
        packet.int(xid).int(code);
        packet
    }

    /// The operation code, if it is a request.
    pub(super) fn code(&self) -> i32 {
        let code = self.0.get(8..).and_then(|rest| rest.first_chunk());
        code.map_or(0, |code| i32::from_be_bytes(*code))
    }

    pub(super) fn int(&mut self, number: i32) -> &mut Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, number: i64) -> &mut Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.push(u8::from(flag));
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.extend(bytes);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// Appends the body of another request, without its header.
    pub(super) fn append(&mut self, request: Self) {
        const HEAD: usize = 12;
        self.0.extend(&request.0[HEAD..]);
    }

    /// The packet as it is sent, with its length filled in.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = i32::try_from(self.0.len() - 4).unwrap_or(i32::MAX);
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// A packet that is being decoded. `None` means that it ended too early: a server of another kind, or
/// a newer one, must not make us panic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `N` bytes.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        self.take().map(|[byte]| byte != 0)
    }

    /// Empty for a null, which is encoded as a length of -1.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?.max(0)).ok()?;
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// A vector of strings. Its length is not trusted: each element is read before the next, so that
    /// a wrong length ends with the packet and reserves no memory.
    pub(super) fn texts(&mut self) -> Option<Vec<String>> {
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text()).collect()
    }

    /// Reads the fields in the order of the protocol, those that nobody uses included.
    pub(super) fn stat(&mut self) -> Option<Stat> {
        let (czxid, _mzxid, ctime, mtime) =
            (self.long()?, self.long()?, self.long()?, self.long()?);
        let (version, _cversion, _aversion) = (self.int()?, self.int()?, self.int()?);
        let owner = self.long()?;
        let (_length, children, _pzxid) = (self.int()?, self.int()?, self.long()?);
        Some(Stat { czxid, ctime, mtime, version, owner, children })
    }
}

/// The metadata of a node, as far as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that created the node: grows with every write to the whole ensemble, so that
    /// it tells two nodes of one name apart.
    pub(crate) czxid: i64,
    /// When the node was created, by the server's clock, in milliseconds.
    pub(crate) ctime: i64,
    /// When its data was last written, by the clock of the leader of then, in milliseconds.
    pub(crate) mtime: i64,
    /// How often its data was written.
    pub(crate) version: i32,
    /// The session of an ephemeral node; zero for any other.
    pub(crate) owner: i64,
    /// How many children it has.
    pub(crate) children: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let mut packet = Packet::request(7, 15);
        packet.text("/a").long(-2).flag(true).bytes(&[]);
        let bytes = packet.finish();
        let mut reader = Reader(&bytes);
        assert_eq!(reader.int(), Some(i32::try_from(bytes.len()).unwrap() - 4));
        assert_eq!((reader.int(), reader.int()), (Some(7), Some(15)));
        assert_eq!(reader.text().as_deref(), Some("/a"));
        assert_eq!(reader.long(), Some(-2));
    }

    #[test]
    fn a_packet_that_ends_early_is_no_panic() {
        assert_eq!(Reader(&[0, 0, 0, 9, 1]).bytes(), None);
        assert_eq!(Reader(&[255, 255, 255, 255]).bytes(), Some(&[][..]));
        assert_eq!(Reader(&[127, 255, 255, 255]).texts(), None);
        assert_eq!(Reader(&[0; 67]).stat(), None);
        assert!(Reader(&[0; 68]).stat().is_some());
    }
}
