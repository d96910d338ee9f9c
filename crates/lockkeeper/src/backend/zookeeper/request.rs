//! What can be asked of ZooKeeper, and what it answers.

use super::jute::{Packet, Reader, Stat};
use super::trouble::{Fault, refusal};

/// The numbers of requests in the protocol.
mod code {
    pub(super) const CREATE_ALONE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_ACL: i32 = 6;
    pub(super) const GET_CHILDREN: i32 = 12;
    pub(super) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE: i32 = 15;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const AUTH: i32 = 100;
    pub(super) const CLOSE: i32 = -11;
}

/// What comes back with what nobody asked for by number.
pub(super) const EVENT: i32 = -1;
const PING: i32 = -2;
/// Every right there is.
const EVERYTHING: i32 = 31;
pub(super) const AUTH: i32 = -4;

/// Any version will do.
const ANY: i32 = -1;

/// A kind of node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ends with its session.
    Ephemeral,
    /// The same, with a number behind its name.
    Sequential,
    /// Removed by ZooKeeper some time after its last child went.
    Container,
}

/// Who may do what with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Open,
    /// Only with the credentials of whoever made it.
    Creator,
}

/// A request, complete but for the number that its answer carries.
#[derive(Debug, Clone)]
pub(super) struct Request(Packet);

impl Request {
    fn new(code: i32) -> Self {
        Self(Packet::request(0, code))
    }

    pub(super) fn create(path: &str, data: &[u8], kind: Kind, access: Access) -> Self {
        let (code, flags) = match kind {
            Kind::Ephemeral => (code::CREATE, 1),
            Kind::Sequential => (code::CREATE, 3),
            Kind::Container => (code::CREATE_CONTAINER, 4),
        };
        let (scheme, id) = match access {
            Access::Open => ("world", "anyone"),
            Access::Creator => ("auth", ""),
        };
        let mut request = Self::new(code);
        request.0.text(path).bytes(data);
        request.0.int(1).int(EVERYTHING).text(scheme).text(id).int(flags);
        request
    }

    pub(super) fn delete(path: &str) -> Self {
        let mut request = Self::new(code::DELETE);
        request.0.text(path).int(ANY);
        request
    }

    pub(super) fn exists(path: &str, watch: bool) -> Self {
        let mut request = Self::new(code::EXISTS);
        request.0.text(path).flag(watch);
        request
    }

    pub(super) fn data(path: &str, watch: bool) -> Self {
        let mut request = Self::new(code::GET_DATA);
        request.0.text(path).flag(watch);
        request
    }

    pub(super) fn children(path: &str) -> Self {
        let mut request = Self::new(code::GET_CHILDREN);
        request.0.text(path).flag(false);
        request
    }

    /// Whether it is answered only once the leader took note of it.
    pub(super) fn reaches_leader(&self) -> bool {
        const ONES: [i32; 6] = [
            code::CREATE,
            code::CREATE_CONTAINER,
            code::DELETE,
            code::SET_DATA,
            code::MULTI,
            code::SYNC,
        ];
        ONES.contains(&self.0.code())
    }

    /// Answered once the server has caught up with the leader as it is now. What is read behind
    /// it is not older than that.
    pub(super) fn sync(path: &str) -> Self {
        let mut request = Self::new(code::SYNC);
        request.0.text(path);
        request
    }

    /// Deletes `path` and writes `data` to `beside`, both or neither, if that still has this
    /// version.
    pub(super) fn delete_noting(path: &str, beside: &str, data: &[u8], version: i32) -> Self {
        let mut request = Self::new(code::MULTI);
        request.part(code::SET_DATA).text(beside).bytes(data).int(version);
        request.part(code::DELETE).text(path).int(ANY);
        request.0.int(-1).flag(true).int(-1);
        request
    }

    /// Who may do what with a node.
    pub(super) fn rights(path: &str) -> Self {
        let mut request = Self::new(code::GET_ACL);
        request.0.text(path);
        request
    }

    /// Deletes a node that nobody is below and makes another of the same name, with these data
    /// and rights: both or neither, if it still has this version.
    pub(super) fn make_anew(path: &str, data: &[u8], version: i32, rights: &Rights) -> Self {
        // One that someone gave rights of his own to was not to come and go by itself.
        let (kind, flags) =
            if rights.are_simple() { (code::CREATE_CONTAINER, 4) } else { (code::CREATE_ALONE, 0) };
        let mut request = Self::new(code::MULTI);
        request.part(code::DELETE).text(path).int(version);
        request.part(kind).text(path).bytes(data);
        request.0.int(i32::try_from(rights.0.len()).unwrap_or(i32::MAX));
        for (what, scheme, id) in &rights.0 {
            request.0.int(*what).text(scheme).text(id);
        }
        request.0.int(flags).int(-1).flag(true).int(-1);
        request
    }

    /// Makes a node, and raises the version of `seal` by writing `data` to it: both or neither, if
    /// that still has this version.
    pub(super) fn create_sealing(create: Self, seal: &str, data: &[u8], version: i32) -> Self {
        let mut request = Self::new(code::MULTI);
        // Not `CREATE`, whose answer some servers leave incomplete among others.
        request.part(code::CREATE_ALONE);
        request.0.append(create.0);
        request.part(code::SET_DATA).text(seal).bytes(data).int(version);
        request.0.int(-1).flag(true).int(-1);
        request
    }

    /// Deletes `path` if `seal` still has this version.
    pub(super) fn delete_sealed(path: &str, seal: &str, version: i32) -> Self {
        let mut request = Self::new(code::MULTI);
        request.part(code::CHECK).text(seal).int(version);
        request.part(code::DELETE).text(path).int(ANY);
        request.0.int(-1).flag(true).int(-1);
        request
    }

    /// Writes `data` to `path`.
    pub(super) fn write(path: &str, data: &[u8]) -> Self {
        let mut request = Self::new(code::SET_DATA);
        request.0.text(path).bytes(data).int(ANY);
        request
    }

    /// The same if `seal` still has this version.
    pub(super) fn write_sealed(path: &str, data: &[u8], seal: &str, version: i32) -> Self {
        let mut request = Self::new(code::MULTI);
        request.part(code::CHECK).text(seal).int(version);
        request.part(code::SET_DATA).text(path).bytes(data).int(ANY);
        request.0.int(-1).flag(true).int(-1);
        request
    }

    fn part(&mut self, code: i32) -> &mut Packet {
        self.0.int(code).flag(false).int(-1)
    }

    pub(super) fn close() -> Self {
        Self::new(code::CLOSE)
    }

    pub(super) fn numbered(self, xid: i32) -> Vec<u8> {
        let mut bytes = self.0.finish();
        bytes[4..8].copy_from_slice(&xid.to_be_bytes());
        bytes
    }

    pub(super) fn ping() -> Vec<u8> {
        Self::new(code::PING).numbered(PING)
    }

    pub(super) fn auth(scheme: &str, credentials: &[u8]) -> Vec<u8> {
        let mut request = Self::new(code::AUTH);
        request.0.int(0).text(scheme).bytes(credentials);
        request.numbered(AUTH)
    }
}

/// Who may do what with a node: what, a scheme, and whom it means there.
#[derive(Debug)]
pub(super) struct Rights(Vec<(i32, String, String)>);

impl Rights {
    /// Whether they are such as a node gets that is made by whoever needs it.
    fn are_simple(&self) -> bool {
        matches!(&self.0[..], [(EVERYTHING, ..)])
    }

    /// Whether they were told to us in full: to those who may not change them, passwords are not.
    fn are_whole(&self) -> bool {
        !self.0.iter().any(|(_, scheme, id)| scheme == "digest" && id.ends_with(":x"))
    }
}

/// An answer: what came behind its header, if it was no refusal.
#[derive(Debug)]
pub(super) struct Answer(pub(super) Vec<u8>);

impl Answer {
    fn read<T>(&self, read: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Result<T, Fault> {
        read(&mut Reader(&self.0))
            .ok_or_else(|| Fault::Unanswered("its answer makes no sense".into()))
    }

    /// The path and the rest of what was made.
    pub(super) fn created(&self) -> Result<(String, Stat), Fault> {
        self.read(|reader| Some((reader.text()?, reader.stat()?)))
    }

    /// Whether every part of a request in several was done; none was if one was not.
    pub(super) fn all_done(&self) -> Result<(), Fault> {
        const ERROR: i32 = -1;
        /// Of a part that was not done because of another.
        const BECAUSE: i32 = -2;
        let mut reader = Reader(&self.0);
        let mut refused = None;
        // Either all of the answers are errors, or none.
        while let (Some(ERROR), Some(false)) = (reader.int(), reader.flag()) {
            let (_, code) = (reader.int(), reader.int());
            if let Some(code) = code.filter(|code| *code != 0 && *code != BECAUSE) {
                refused = refused.or(Some(Fault::of(code)));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    pub(super) fn stat(&self) -> Result<Stat, Fault> {
        self.read(|reader| reader.stat())
    }

    pub(super) fn data(&self) -> Result<(Vec<u8>, Stat), Fault> {
        self.read(|reader| Some((reader.bytes()?.to_vec(), reader.stat()?)))
    }

    /// Who may do what; refused where not all of it was told.
    pub(super) fn rights(&self) -> Result<Rights, Fault> {
        let one = |reader: &mut Reader<'_>| Some((reader.int()?, reader.text()?, reader.text()?));
        let rights = self.read(|reader| {
            let count = reader.int()?.max(0);
            (0..count).map(|_| one(reader)).collect::<Option<Vec<_>>>().map(Rights)
        })?;
        if rights.are_whole() { Ok(rights) } else { Err(Fault::Refused(refusal::NO_AUTH)) }
    }

    pub(super) fn children(&self) -> Result<Vec<String>, Fault> {
        self.read(|reader| reader.texts())
    }

    /// The children of a node, and the rest of what is known of it.
    pub(super) fn listing(&self) -> Result<(Vec<String>, Stat), Fault> {
        self.read(|reader| Some((reader.texts()?, reader.stat()?)))
    }
}

/// Something happened to a node that was watched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) path: String,
    pub(super) deleted: bool,
}

impl Event {
    pub(super) fn read(mut reader: Reader<'_>) -> Option<Self> {
        const DELETED: i32 = 2;
        let (kind, _state) = (reader.int()?, reader.int()?);
        Some(Self { path: reader.text()?, deleted: kind == DELETED })
    }
}
