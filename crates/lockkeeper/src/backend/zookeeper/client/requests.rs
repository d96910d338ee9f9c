//! Every operation that is asked of ZooKeeper, one function each.
//!
//! They are encoded when they are made, all but the number that their answer will carry: a request
//! can be sent again as it is. The answers are read by [`Answer`](super::answers::Answer).

use super::answers::{ALL_PERMISSIONS, AclList};
use super::jute::Packet;

/// The operation codes of the protocol.
mod code {
    pub(super) const CREATE_PLAIN: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_ACL: i32 = 6;
    pub(super) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    pub(super) const GET_CHILDREN: i32 = 12;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    /// With the new node's metadata in the answer.
    pub(super) const CREATE: i32 = 15;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const AUTH: i32 = 100;
    pub(super) const CLOSE: i32 = -11;
}

/// The numbers in the header of what is not the answer to a numbered request.
pub(super) const EVENT: i32 = -1;
const PING: i32 = -2;
pub(super) const AUTH: i32 = -4;

/// In place of an expected version: any version will do.
const ANY: i32 = -1;

/// How long a node lives, and who names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Until its session ends.
    Ephemeral,
    /// The same, with a number from its parent's counter appended to its name.
    EphemeralSequential,
    /// Until some time after its last child went.
    Container,
    /// Until it is deleted.
    Persistent,
}

/// Who may use the nodes that are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Every client of the ensemble.
    Open,
    /// Only clients with the credentials of the one that made the node.
    Creator,
}

/// A request, complete but for the number that its answer carries.
#[derive(Debug, Clone)]
pub(crate) struct Request(Packet);

impl Request {
    fn new(code: i32) -> Self {
        Self(Packet::request(0, code))
    }

    /// Creates a node. Not idempotent where the kind is sequential.
    pub(crate) fn create(path: &str, data: &[u8], kind: NodeKind, access: Access) -> Self {
        let (code, flags) = match kind {
            NodeKind::Ephemeral => (code::CREATE, 1),
            NodeKind::EphemeralSequential => (code::CREATE, 3),
            NodeKind::Container => (code::CREATE_CONTAINER, 4),
            NodeKind::Persistent => (code::CREATE, 0),
        };
        let (scheme, id) = match access {
            Access::Open => ("world", "anyone"),
            Access::Creator => ("auth", ""),
        };
        let mut request = Self::new(code);
        request.0.text(path).bytes(data);
        // An access control list of one entry.
        request.0.int(1).int(ALL_PERMISSIONS).text(scheme).text(id).int(flags);
        request
    }

    pub(crate) fn delete(path: &str) -> Self {
        let mut request = Self::new(code::DELETE);
        request.0.text(path).int(ANY);
        request
    }

    /// A node's metadata; with a watch, which is also set where there is no such node yet.
    pub(crate) fn exists(path: &str, watch: bool) -> Self {
        let mut request = Self::new(code::EXISTS);
        request.0.text(path).flag(watch);
        request
    }

    /// A node's data and metadata; with a watch, which is set only where there is such a node.
    pub(crate) fn data(path: &str, watch: bool) -> Self {
        let mut request = Self::new(code::GET_DATA);
        request.0.text(path).flag(watch);
        request
    }

    pub(crate) fn children(path: &str) -> Self {
        let mut request = Self::new(code::GET_CHILDREN);
        request.0.text(path).flag(false);
        request
    }

    pub(crate) fn acl(path: &str) -> Self {
        let mut request = Self::new(code::GET_ACL);
        request.0.text(path);
        request
    }

    /// Writes `data` to `path`.
    pub(crate) fn write(path: &str, data: &[u8]) -> Self {
        let mut request = Self::new(code::SET_DATA);
        request.0.text(path).bytes(data).int(ANY);
        request
    }

    /// Writes `data` to `path`, provided that it has this version.
    pub(crate) fn replace(path: &str, data: &[u8], version: i32) -> Self {
        let mut request = Self::new(code::SET_DATA);
        request.0.text(path).bytes(data).int(version);
        request
    }

    /// Answered once the server has caught up with the leader as of now. Whatever is read after
    /// it on the same connection is no older than that: reads alone may be stale.
    pub(crate) fn sync(path: &str) -> Self {
        let mut request = Self::new(code::SYNC);
        request.0.text(path);
        request
    }

    /// Writes `data` to `written` and deletes `deleted`, both or neither, provided that `written`
    /// has this version.
    pub(crate) fn write_and_delete(
        written: &str,
        data: &[u8],
        version: i32,
        deleted: &str,
    ) -> Self {
        let mut request = Self::new(code::MULTI);
        request.operation(code::SET_DATA).text(written).bytes(data).int(version);
        request.operation(code::DELETE).text(deleted).int(ANY);
        request.end_of_operations()
    }

    /// Creates a node with the request `create` and writes `data` to `written`, both or neither,
    /// provided that `written` has this version; its version is then one higher.
    pub(crate) fn create_and_write(create: Self, written: &str, data: &[u8], version: i32) -> Self {
        let mut request = Self::new(code::MULTI);
        // Not `CREATE`, whose result some servers leave incomplete among several.
        request.operation(code::CREATE_PLAIN);
        request.0.append(create.0);
        request.operation(code::SET_DATA).text(written).bytes(data).int(version);
        request.end_of_operations()
    }

    /// Deletes `path`, provided that `checked` has this version.
    pub(crate) fn delete_if(path: &str, checked: &str, version: i32) -> Self {
        let mut request = Self::new(code::MULTI);
        request.operation(code::CHECK).text(checked).int(version);
        request.operation(code::DELETE).text(path).int(ANY);
        request.end_of_operations()
    }

    /// Writes `data` to `path`, provided that `checked` has this version.
    pub(crate) fn write_if(path: &str, data: &[u8], checked: &str, version: i32) -> Self {
        let mut request = Self::new(code::MULTI);
        request.operation(code::CHECK).text(checked).int(version);
        request.operation(code::SET_DATA).text(path).bytes(data).int(ANY);
        request.end_of_operations()
    }

    /// Deletes a node without children and creates it anew with this data and access control
    /// list, both or neither, provided that it has this version. The new node numbers its children
    /// from zero.
    pub(crate) fn recreate(path: &str, data: &[u8], version: i32, acl: &AclList) -> Self {
        // A node with an access control list of its own was put there by an operator, who would
        // not expect the server to remove it when it is empty.
        let (kind, flags) =
            if acl.is_simple() { (code::CREATE_CONTAINER, 4) } else { (code::CREATE_PLAIN, 0) };
        let mut request = Self::new(code::MULTI);
        request.operation(code::DELETE).text(path).int(version);
        request.operation(kind).text(path).bytes(data);
        request.0.int(i32::try_from(acl.0.len()).unwrap_or(i32::MAX));
        for (permissions, scheme, id) in &acl.0 {
            request.0.int(*permissions).text(scheme).text(id);
        }
        request.0.int(flags);
        request.end_of_operations()
    }

    /// Begins one of several operations, each of which has a header of its own.
    fn operation(&mut self, code: i32) -> &mut Packet {
        self.0.int(code).flag(false).int(-1)
    }

    fn end_of_operations(mut self) -> Self {
        self.0.int(-1).flag(true).int(-1);
        self
    }

    /// Ends the session, and every ephemeral node with it.
    pub(super) fn close() -> Self {
        Self::new(code::CLOSE)
    }

    /// Whether it is answered only once the leader has processed it. Such an answer proves that
    /// the session was alive when the request was sent; one that a follower gives from its own
    /// memory does not.
    pub(super) fn reaches_leader(&self) -> bool {
        const THROUGH_THE_LEADER: [i32; 6] = [
            code::CREATE,
            code::CREATE_CONTAINER,
            code::DELETE,
            code::SET_DATA,
            code::MULTI,
            code::SYNC,
        ];
        THROUGH_THE_LEADER.contains(&self.0.code())
    }

    /// The bytes to send, with the number that the answer will carry.
    pub(super) fn numbered(self, xid: i32) -> Vec<u8> {
        let mut bytes = self.0.finish();
        bytes[4..8].copy_from_slice(&xid.to_be_bytes());
        bytes
    }

    /// A heartbeat.
    pub(super) fn ping() -> Vec<u8> {
        Self::new(code::PING).numbered(PING)
    }

    /// A login.
    pub(super) fn auth(scheme: &str, credentials: &[u8]) -> Vec<u8> {
        let mut request = Self::new(code::AUTH);
        request.0.int(0).text(scheme).bytes(credentials);
        request.numbered(AUTH)
    }
}
