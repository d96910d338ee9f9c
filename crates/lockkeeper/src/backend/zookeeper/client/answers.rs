//! What ZooKeeper answers, and the events that it sends unasked.
//!
//! An answer whose body makes no sense counts as no answer at all: what the server did is not known.

use super::error::{Failure, refusal};
use super::jute::{Reader, Stat};
use super::watchers::Change;

/// Every permission there is: read, write, create, delete, administer.
pub(super) const ALL_PERMISSIONS: i32 = 31;

/// The access control list of a node: permissions, an authentication scheme, and an identity
/// within that scheme.
#[derive(Debug)]
pub(crate) struct AclList(pub(super) Vec<(i32, String, String)>);

impl AclList {
    /// Whether it is a list such as this client gives to the nodes it creates.
    pub(super) fn is_simple(&self) -> bool {
        matches!(&self.0[..], [(ALL_PERMISSIONS, ..)])
    }

    /// Whether the server sent all of it: a session that may not administer the node sees `x`
    /// in place of each password's hash.
    fn is_complete(&self) -> bool {
        !self.0.iter().any(|(_, scheme, id)| scheme == "digest" && id.ends_with(":x"))
    }
}

/// The body of an answer that was no refusal. What is in it depends on the request: each reader
/// below names the requests it is for.
#[derive(Debug)]
pub(crate) struct Answer(pub(super) Vec<u8>);

impl Answer {
    /// Reads a body. What is behind the part that is read is ignored: newer servers may send more.
    fn read<T>(&self, read: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Result<T, Failure> {
        read(&mut Reader(&self.0))
            .ok_or_else(|| Failure::Unanswered("its answer makes no sense".into()))
    }

    /// `create`: the path of the new node, with its number if it has one, and its metadata.
    pub(crate) fn created(&self) -> Result<(String, Stat), Failure> {
        self.read(|reader| Some((reader.text()?, reader.stat()?)))
    }

    /// A request of several operations: whether they were carried out. Either all were, or none.
    pub(crate) fn all_done(&self) -> Result<(), Failure> {
        const ERROR: i32 = -1;
        /// The code of an operation that was not carried out because another one failed.
        const BECAUSE_OF_ANOTHER: i32 = -2;
        let mut reader = Reader(&self.0);
        let mut refused = None;
        // Either all of the results are errors, or none is.
        while let (Some(ERROR), Some(false)) = (reader.int(), reader.flag()) {
            let (_, code) = (reader.int(), reader.int());
            if let Some(code) = code.filter(|code| *code != 0 && *code != BECAUSE_OF_ANOTHER) {
                refused = refused.or(Some(Failure::of(code)));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// `exists`, `write` and `replace`: the node's metadata.
    pub(crate) fn stat(&self) -> Result<Stat, Failure> {
        self.read(|reader| reader.stat())
    }

    /// `data`: the node's data and metadata.
    pub(crate) fn data(&self) -> Result<(Vec<u8>, Stat), Failure> {
        self.read(|reader| Some((reader.bytes()?.to_vec(), reader.stat()?)))
    }

    /// `acl`: the node's access control list; refused where the server left out part of it.
    pub(crate) fn acl(&self) -> Result<AclList, Failure> {
        let one = |reader: &mut Reader<'_>| Some((reader.int()?, reader.text()?, reader.text()?));
        let list = self.read(|reader| {
            let count = reader.int()?.max(0);
            (0..count).map(|_| one(reader)).collect::<Option<Vec<_>>>().map(AclList)
        })?;
        if list.is_complete() { Ok(list) } else { Err(Failure::Refused(refusal::NO_AUTH)) }
    }

    /// `children`: their names, in no order.
    pub(crate) fn children(&self) -> Result<Vec<String>, Failure> {
        self.read(|reader| reader.texts())
    }

    /// `children`: their names, and the metadata of their parent as of the same moment.
    pub(crate) fn listing(&self) -> Result<(Vec<String>, Stat), Failure> {
        self.read(|reader| Some((reader.texts()?, reader.stat()?)))
    }
}

/// Something happened to a watched node.
#[derive(Debug, PartialEq, Eq)]
///
/// It says that there was a change, not what the node looks like now: further changes are not
/// reported until the node is watched again.
pub(crate) struct NodeEvent {
    pub(crate) path: String,
    pub(crate) change: Change,
}

impl NodeEvent {
    /// Reads the body of an event. Its type is not looked at beyond whether the node was deleted, and
    /// the state of the connection in it says nothing that the connection itself does not.
    pub(super) fn read(mut reader: Reader<'_>) -> Option<Self> {
        const DELETED: i32 = 2;
        let (kind, _state) = (reader.int()?, reader.int()?);
        let change = if kind == DELETED { Change::Deleted } else { Change::Other };
        Some(Self { path: reader.text()?, change })
    }
}

/// An answer to `data` with this text, for tests of what reads such answers.
#[cfg(test)]
pub(crate) fn data_answer(text: &str) -> Answer {
    let mut packet = super::jute::Packet::new();
    packet.text(text);
    let mut bytes = packet.finish().split_off(4);
    bytes.extend([0; 68]);
    Answer(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::jute::Packet;
    use super::*;

    /// The results of a request of several operations, as the server writes them.
    fn results(codes: &[i32]) -> Answer {
        let mut packet = Packet::new();
        for code in codes {
            packet.int(-1).flag(false).int(*code).int(*code);
        }
        packet.int(-1).flag(true).int(-1);
        Answer(packet.finish().split_off(4))
    }

    #[test]
    fn of_several_operations_the_one_that_failed_is_reported() {
        let failed = results(&[-2, refusal::BAD_VERSION, -2]).all_done();
        assert_eq!(failed, Err(Failure::Refused(refusal::BAD_VERSION)));
        assert_eq!(results(&[]).all_done(), Ok(()));
    }

    #[test]
    fn an_acl_with_hidden_passwords_is_refused() {
        let acl = |id: &str| {
            let mut packet = Packet::new();
            packet.int(1).int(ALL_PERMISSIONS).text("digest").text(id);
            Answer(packet.finish().split_off(4)).acl()
        };
        assert!(acl("me:aGFzaA=").unwrap().is_simple());
        assert_eq!(acl("me:x").unwrap_err(), Failure::Refused(refusal::NO_AUTH));
    }
}
