//! What is asked of etcd: every atomic request, and how its answer is read.
//!
//! Three comparisons make requests safe to repeat.
//! - *The create revision of a key* says whose claim it is. A request that deletes or rewrites a
//!   key names the revision at which its own claim created it, and does nothing to a later one.
//! - *The lease that a key lives on* says whether the claim is still this keeper's alone. One that was
//!   moved to a lease of its own is kept by whoever has its ticket.
//! - *The generation of the session*, the value of its generation key, says whether a request for
//!   a new key still counts. A request whose answer was lost may be carried out at any time later,
//!   by a member that was stuck; so a withdrawal deletes the key and changes the generation in one
//!   step, and what was sent before finds another generation than it expects.

use super::keys::{ClaimKey, KeyRange};
use super::protocol::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, ResponseHeader, ResponseOp, SortOrder, SortTarget,
    Target, TxnRequest, TxnResponse,
};
use super::record;
use crate::backend::{Claim, Mode};

/// Steps into the queue, at its end; answers with what [`newest`] reads.
pub(super) fn enter(key: &ClaimKey, claim: &Claim, generation: &[u8]) -> TxnRequest {
    TxnRequest {
        compare: vec![created_at(key.bytes(), 0), has_generation(key, generation)],
        success: vec![put_claim(key, claim), get(newest(key))],
        // Why it failed is asked when it did: all of this is written to etcd's log.
        failure: Vec::new(),
    }
}

/// Why [`enter`] failed; the answer is an [`InTheWay`] without a queue.
pub(super) fn why_not_entered(key: &ClaimKey) -> TxnRequest {
    let reads = vec![get(one(key.bytes().to_vec())), get(one(key.generation_key.clone()))];
    TxnRequest { compare: Vec::new(), success: reads, failure: Vec::new() }
}

/// Steps in only if nobody came after `revision`, or, if that is zero, if nobody is there; answers
/// with an [`InTheWay`] if not.
pub(super) fn enter_if_alone(
    key: &ClaimKey,
    claim: &Claim,
    generation: &[u8],
    revision: i64,
) -> TxnRequest {
    let mut nobody = nobody_in(key);
    if revision > 0 {
        nobody.result = CompareResult::Less as i32;
        nobody.against = Some(Target::CreateRevision(revision + 1));
    }
    TxnRequest {
        compare: vec![nobody, has_generation(key, generation)],
        success: vec![put_claim(key, claim)],
        failure: vec![
            get(one(key.bytes().to_vec())),
            get(one(key.generation_key.clone())),
            get(oldest(key)),
        ],
    }
}

/// Steps into several queues of one session, if nobody is in any of them; answers with what
/// [`oldest`] reads of each if not.
pub(super) fn enter_all(keys: &[ClaimKey], claims: &[Claim], generation: &[u8]) -> TxnRequest {
    let mut compare: Vec<Compare> = keys.iter().map(nobody_in).collect();
    compare.extend(keys.first().map(|key| has_generation(key, generation)));
    TxnRequest {
        compare,
        success: keys.iter().zip(claims).map(|(key, claim)| put_claim(key, claim)).collect(),
        failure: keys.iter().map(|key| get(oldest(key))).collect(),
    }
}

/// Writes a key that lives on no lease, if it says `expected`, or is absent; answers with what it says
/// if not.
pub(super) fn write_if(key: &[u8], value: Vec<u8>, expected: Option<&[u8]>) -> TxnRequest {
    let absent = created_at(key, 0);
    let compare = match expected {
        None => absent,
        Some(expected) => {
            let (target, value) = (CompareTarget::Value as i32, expected.to_vec());
            Compare { target, against: Some(Target::Value(value)), ..absent }
        }
    };
    TxnRequest {
        compare: vec![compare],
        success: vec![put(PutRequest { key: key.to_vec(), value, lease: 0, ignore_lease: false })],
        failure: vec![get(one(key.to_vec()))],
    }
}

/// Deletes the key if it is still the one that was created then.
pub(super) fn delete(key: &[u8], create_revision: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![created_at(key, create_revision)],
        success: vec![remove(key)],
        failure: Vec::new(),
    }
}

/// Writes something else into the key if it is still the one that was created then; under another
/// lease, if one is given. The create revision stays, and with it the place in the queue and the
/// token.
pub(super) fn rewrite(key: &[u8], create_revision: i64, value: Vec<u8>, lease: i64) -> TxnRequest {
    let (key, ignore_lease) = (key.to_vec(), lease == 0);
    TxnRequest {
        compare: vec![created_at(&key, create_revision)],
        success: vec![put(PutRequest { key, value, lease, ignore_lease })],
        failure: Vec::new(),
    }
}

/// Deletes the key if it is still the one that was created then, and begins a new generation, so
/// that no request sent before can create the key again.
pub(super) fn delete_for_good(
    key: &ClaimKey,
    create_revision: i64,
    generation: &[u8],
) -> TxnRequest {
    TxnRequest {
        compare: vec![created_at(key.bytes(), create_revision)],
        success: vec![remove(key.bytes()), put_generation(key, generation)],
        failure: Vec::new(),
    }
}

/// Deletes the key if it is still the one that was created then and lives on its keeper's session;
/// not one that was moved from there.
pub(super) fn delete_if_here(key: &ClaimKey, create_revision: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![created_at(key.bytes(), create_revision), lives_on(key.bytes(), key.lease)],
        success: vec![remove(key.bytes())],
        failure: Vec::new(),
    }
}

/// The same, and begins a new generation either way, so that no request sent before can create the
/// key when whoever keeps it has given it back.
pub(super) fn delete_if_here_for_good(
    key: &ClaimKey,
    create_revision: i64,
    generation: &[u8],
) -> TxnRequest {
    let mut request = delete_if_here(key, create_revision);
    request.success.push(put_generation(key, generation));
    request.failure.push(put_generation(key, generation));
    request
}

/// Moves the key to another lease, if it is still the one that was created then and lives on `from`.
/// The create revision stays, and with it the place in the queue and the token.
pub(super) fn relocate(
    key: &[u8],
    create_revision: i64,
    from: i64,
    value: Vec<u8>,
    to: i64,
) -> TxnRequest {
    let moved = PutRequest { key: key.to_vec(), value, lease: to, ignore_lease: false };
    TxnRequest {
        compare: vec![created_at(key, create_revision), lives_on(key, from)],
        success: vec![put(moved)],
        failure: Vec::new(),
    }
}

/// Deletes the key if it is still the one that was created then, and answers with what it was.
pub(super) fn take(key: &[u8], create_revision: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![created_at(key, create_revision)],
        success: vec![get(one(key.to_vec())), remove(key)],
        failure: Vec::new(),
    }
}

/// Deletes the key if it is still the one that was created then and lives on this lease.
pub(super) fn take_from(key: &[u8], create_revision: i64, lease: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![created_at(key, create_revision), lives_on(key, lease)],
        success: vec![remove(key)],
        failure: Vec::new(),
    }
}

/// Begins a new generation, so that no request sent before can create the key.
pub(super) fn void(key: &ClaimKey, generation: &[u8]) -> TxnRequest {
    let success = vec![put_generation(key, generation)];
    TxnRequest { compare: Vec::new(), success, failure: Vec::new() }
}

/// Deletes a key of which it is not known whether it was created, and begins a new generation. Does
/// nothing unless the generation is the expected one: carried out a second time, and late, this must not delete what
/// is another claim's by then. Answers with the generation if it is another.
pub(super) fn withdraw(key: &ClaimKey, generation: &[u8], expected: &[u8]) -> TxnRequest {
    // The same key may be that of a claim which this keeper has handed out: then it is not ours.
    let removed = TxnRequest {
        compare: vec![lives_on(key.bytes(), key.lease)],
        success: vec![remove(key.bytes())],
        failure: Vec::new(),
    };
    let removed = RequestOp { request: Some(Request::Txn(removed)) };
    TxnRequest {
        compare: vec![has_generation(key, expected)],
        success: vec![removed, put_generation(key, generation)],
        failure: vec![get(one(key.generation_key.clone()))],
    }
}

/// The end of the queue: as much of it as it takes to know where the last claim stands. An
/// exclusive claim needs to know only whether another is before it; what others share by, or how
/// many they are, takes all of them.
pub(super) fn newest(key: &ClaimKey) -> RangeRequest {
    some_of(key, SortOrder::Descend, 2)
}

/// The same, when there may be others behind us.
pub(super) fn newest_up_to(key: &ClaimKey, create_revision: i64) -> RangeRequest {
    RangeRequest { max_create_revision: create_revision, ..newest(key) }
}

/// Every claim that was there no later than the one created then.
pub(super) fn all_up_to(key: &ClaimKey, create_revision: i64) -> RangeRequest {
    RangeRequest { max_create_revision: create_revision, ..all(key) }
}

/// Every claim on the name, and whatever is below longer names that begin with it.
pub(super) fn all(key: &ClaimKey) -> RangeRequest {
    whole(&key.range)
}

/// The head of the queue: as much of it as it takes to know that the name is not free.
fn oldest(key: &ClaimKey) -> RangeRequest {
    some_of(key, SortOrder::Ascend, 1)
}

/// The first of the queue in this order, at most `limit`, and without values where the mode allows:
/// an exclusive claim is excluded by any other, whatever its mode. The other modes need every
/// value.
fn some_of(key: &ClaimKey, order: SortOrder, limit: i64) -> RangeRequest {
    match key.mode {
        Mode::Exclusive => RangeRequest {
            limit,
            keys_only: true,
            sort_order: order as i32,
            sort_target: SortTarget::Create as i32,
            ..all(key)
        },
        Mode::Shared | Mode::Permit { .. } => all(key),
    }
}

/// The claim on a name that was created then.
pub(super) fn created_then(range: &KeyRange, create_revision: i64) -> RangeRequest {
    RangeRequest {
        min_create_revision: create_revision,
        max_create_revision: create_revision,
        ..whole(range)
    }
}

/// Every claim on the name, and whatever is below longer names that begin with it.
pub(super) fn whole(claims: &KeyRange) -> RangeRequest {
    range(claims.start(), claims.end())
}

/// One key.
pub(super) fn one(key: Vec<u8>) -> RangeRequest {
    range(key, Vec::new())
}

/// The keys from `key` up to, and without, `range_end`.
pub(super) fn range(key: Vec<u8>, range_end: Vec<u8>) -> RangeRequest {
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

/// What kept a claim from stepping in.
pub(super) struct InTheWay {
    /// Our own key: an earlier copy of the request was carried out.
    pub(super) ours: Option<KeyValue>,
    /// The generation of the session, as it is now.
    pub(super) generation: Vec<u8>,
    /// The head of the queue.
    pub(super) oldest: Vec<KeyValue>,
}

impl InTheWay {
    /// The reads stand in the order in which the two requests that answer so list them.
    pub(super) fn read(answer: TxnResponse) -> Self {
        let mut reads = reads(answer.responses);
        Self {
            ours: first_of(reads.next()),
            generation: first_of(reads.next()).map(|kv| kv.value).unwrap_or_default(),
            oldest: reads.next().unwrap_or_default().kvs,
        }
    }
}

/// The answers to the reads of a transaction, in order.
pub(super) fn reads(responses: Vec<ResponseOp>) -> impl Iterator<Item = RangeResponse> {
    responses.into_iter().filter_map(|operation| match operation.response {
        Some(Response::Range(range)) => Some(range),
        _ => None,
    })
}

/// The one key that was asked for, if it is there.
pub(super) fn first_of(range: Option<RangeResponse>) -> Option<KeyValue> {
    range?.kvs.into_iter().next()
}

/// The revision that an answer speaks of.
pub(super) fn revision_of(header: Option<ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// Holds if the key was created at this revision; at zero, if it is not there.
fn created_at(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Create as i32,
        key: key.to_vec(),
        against: Some(Target::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

/// Holds if the key lives on this lease.
fn lives_on(key: &[u8], lease: i64) -> Compare {
    let (target, against) = (CompareTarget::Lease as i32, Some(Target::Lease(lease)));
    Compare { target, against, ..created_at(key, 0) }
}

/// Holds if there is no claim on the name. One on a longer name stands in the way too: etcd cannot
/// compare all keys of a range but those.
fn nobody_in(key: &ClaimKey) -> Compare {
    Compare { range_end: key.range.end(), ..created_at(&key.range.start(), 0) }
}

/// Holds if the session is of this generation; the empty one is before the first withdrawal.
fn has_generation(key: &ClaimKey, generation: &[u8]) -> Compare {
    let absent = created_at(&key.generation_key, 0);
    if generation.is_empty() {
        return absent;
    }
    let (target, value) = (CompareTarget::Value as i32, generation.to_vec());
    Compare { target, against: Some(Target::Value(value)), ..absent }
}

/// On the server lease, so that the key ends with the session if its keeper dies.
fn put_claim(key: &ClaimKey, claim: &Claim) -> RequestOp {
    let (bytes, value) = (key.bytes().to_vec(), record::write(claim, key.length));
    put(PutRequest { key: bytes, value, lease: key.lease, ignore_lease: false })
}

/// On the same lease as the keys that it guards: it is never needed for longer than they.
fn put_generation(key: &ClaimKey, generation: &[u8]) -> RequestOp {
    let (bytes, value) = (key.generation_key.clone(), generation.to_vec());
    put(PutRequest { key: bytes, value, lease: key.lease, ignore_lease: false })
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
