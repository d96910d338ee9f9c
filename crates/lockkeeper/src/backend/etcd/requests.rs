//! What is asked of etcd, each in one transaction.

use super::key::{Keys, Line, OwnKey, doubt_key};
use super::proto::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, ResponseOp, SortOrder, SortTarget, Target,
    TxnRequest,
};
use super::session::Term;
use super::{lock, record};
use crate::backend::{Claim, Mode};
use std::sync::Arc;

/// A claim's key, with what makes it.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub(super) line: Line,
    pub(super) key: Arc<OwnKey>,
    pub(super) mode: Mode,
}

impl Ticket {
    pub(super) fn new(prefix: &str, keys: &Keys, claim: &Claim, term: &Term) -> Self {
        let line = Line::new(prefix, &claim.name);
        let key = keys.take(&line, term.lease);
        Self { line, key, mode: claim.mode }
    }

    /// Those in the line, or as many of them as it takes to know where we stand as the last.
    pub(super) fn last(&self) -> RangeRequest {
        let all = range(self.line.start(), self.line.end());
        match self.mode {
            // The last and the one before it.
            Mode::Exclusive => RangeRequest {
                limit: 2,
                keys_only: true,
                sort_order: SortOrder::Descend as i32,
                sort_target: SortTarget::Create as i32,
                ..all
            },
            Mode::Shared | Mode::Permit { .. } => all,
        }
    }

    /// The same, when there may be others behind us.
    pub(super) fn up_to(&self, create_revision: i64) -> RangeRequest {
        RangeRequest { max_create_revision: create_revision, ..self.last() }
    }

    /// Everyone who was there no later than we.
    pub(super) fn all_up_to(&self, create_revision: i64) -> RangeRequest {
        let all = range(self.line.start(), self.line.end());
        RangeRequest { max_create_revision: create_revision, ..all }
    }

    /// Steps into the line.
    pub(super) fn enter(&self, prefix: &str, claim: &Claim, term: &Term) -> TxnRequest {
        TxnRequest {
            compare: vec![created(self.key.bytes(), 0), no_doubt(prefix, term)],
            success: vec![self.put(claim, term), get(self.last())],
            // Why it failed is asked when it did: all of this is written to etcd's log.
            failure: Vec::new(),
        }
    }

    /// Why stepping in failed: our key if it is there, and the key of doubt.
    pub(super) fn what_was_in_the_way(&self, prefix: &str, term: &Term) -> TxnRequest {
        let mine = get(one(self.key.bytes().to_vec()));
        let doubt = get(one(doubt_key(prefix, term.lease)));
        TxnRequest { compare: Vec::new(), success: vec![mine, doubt], failure: Vec::new() }
    }

    /// Steps in only if nobody came after `revision`; if that is zero, only if nobody is there.
    pub(super) fn enter_unless_joined(
        &self,
        prefix: &str,
        claim: &Claim,
        term: &Term,
        revision: i64,
    ) -> TxnRequest {
        let mut nobody = self.nobody();
        if revision > 0 {
            nobody.result = CompareResult::Less as i32;
            nobody.against = Some(Target::CreateRevision(revision + 1));
        }
        TxnRequest {
            compare: vec![nobody, no_doubt(prefix, term)],
            success: vec![self.put(claim, term)],
            failure: vec![
                get(one(self.key.bytes().to_vec())),
                get(one(doubt_key(prefix, term.lease))),
                get(self.first()),
            ],
        }
    }

    fn nobody(&self) -> Compare {
        Compare { range_end: self.line.end(), ..created(&self.line.start(), 0) }
    }

    /// Those at the head, or as many of them as it takes to know that the name is not free.
    fn first(&self) -> RangeRequest {
        let all = range(self.line.start(), self.line.end());
        match self.mode {
            Mode::Exclusive => RangeRequest {
                limit: 1,
                keys_only: true,
                sort_order: SortOrder::Ascend as i32,
                sort_target: SortTarget::Create as i32,
                ..all
            },
            Mode::Shared | Mode::Permit { .. } => all,
        }
    }

    pub(super) fn everyone(&self) -> RangeRequest {
        range(self.line.start(), self.line.end())
    }

    fn put(&self, claim: &Claim, term: &Term) -> RequestOp {
        put(PutRequest {
            key: self.key.bytes().to_vec(),
            value: record::write(claim),
            lease: term.lease,
            ignore_lease: false,
        })
    }
}

/// Steps into several lines, if nobody is in any of them.
pub(super) fn enter_all(
    prefix: &str,
    claims: &[Claim],
    tickets: &[Ticket],
    term: &Term,
) -> TxnRequest {
    let mut compare: Vec<Compare> = tickets.iter().map(Ticket::nobody).collect();
    compare.push(no_doubt(prefix, term));
    let puts = tickets.iter().zip(claims).map(|(ticket, claim)| ticket.put(claim, term));
    TxnRequest {
        compare,
        success: puts.collect(),
        failure: tickets.iter().map(|ticket| get(ticket.first())).collect(),
    }
}

/// Deletes the key if it is still the one that was created then.
pub(super) fn delete(key: &[u8], create_revision: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![created(key, create_revision)],
        success: vec![remove(key)],
        failure: Vec::new(),
    }
}

/// Writes something else into the key if it is still the one that was created then; under
/// another lease, if one is given.
pub(super) fn rewrite(key: &[u8], create_revision: i64, value: Vec<u8>, lease: i64) -> TxnRequest {
    let (key, ignore_lease) = (key.to_vec(), lease == 0);
    TxnRequest {
        compare: vec![created(&key, create_revision)],
        success: vec![put(PutRequest { key, value, lease, ignore_lease })],
        failure: Vec::new(),
    }
}

/// Deletes the key if it is still the one that was created then, and sees to it that no request
/// made before can bring it back: those expect something else in the key of doubt.
pub(super) fn delete_for_good(
    prefix: &str,
    lease: i64,
    key: &[u8],
    create_revision: i64,
    mark: &[u8],
) -> TxnRequest {
    TxnRequest {
        compare: vec![created(key, create_revision)],
        success: vec![remove(key), put(doubt(prefix, lease, mark))],
        failure: Vec::new(),
    }
}

/// The same for a key of which it is not known whether it was created. Does nothing unless the
/// key of doubt has what is expected in it: carried out a second time, and late, this must not
/// delete what is another claim's by then.
pub(super) fn withdraw(
    prefix: &str,
    lease: i64,
    key: &[u8],
    mark: &[u8],
    expected: &[u8],
) -> TxnRequest {
    TxnRequest {
        compare: vec![marked(prefix, lease, expected)],
        success: vec![remove(key), put(doubt(prefix, lease, mark))],
        failure: vec![get(one(doubt_key(prefix, lease)))],
    }
}

fn doubt(prefix: &str, lease: i64, mark: &[u8]) -> PutRequest {
    let (key, value) = (doubt_key(prefix, lease), mark.to_vec());
    PutRequest { key, value, lease, ignore_lease: false }
}

fn created(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Create as i32,
        key: key.to_vec(),
        against: Some(Target::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

fn no_doubt(prefix: &str, term: &Term) -> Compare {
    marked(prefix, term.lease, &lock(&term.doubt))
}

/// Whether the key of doubt has this in it; nothing if it was never written.
fn marked(prefix: &str, lease: i64, mark: &[u8]) -> Compare {
    let key = doubt_key(prefix, lease);
    if mark.is_empty() {
        return created(&key, 0);
    }
    Compare {
        target: CompareTarget::Value as i32,
        against: Some(Target::Value(mark.to_vec())),
        ..created(&key, 0)
    }
}

pub(super) fn one(key: Vec<u8>) -> RangeRequest {
    range(key, Vec::new())
}

pub(super) fn range(key: Vec<u8>, range_end: Vec<u8>) -> RangeRequest {
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

fn get(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::Range(request)) }
}

fn put(request: PutRequest) -> RequestOp {
    RequestOp { request: Some(Request::Put(request)) }
}

fn remove(key: &[u8]) -> RequestOp {
    let request = DeleteRangeRequest { key: key.to_vec() };
    RequestOp { request: Some(Request::DeleteRange(request)) }
}

/// The answers to the reads of a transaction, in order.
pub(super) fn reads(responses: Vec<ResponseOp>) -> impl Iterator<Item = RangeResponse> {
    responses.into_iter().filter_map(|operation| match operation.response {
        Some(Response::Range(range)) => Some(range),
        _ => None,
    })
}

pub(super) fn first_of(range: Option<RangeResponse>) -> Option<KeyValue> {
    range?.kvs.into_iter().next()
}
