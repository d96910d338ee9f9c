//! etcd: a lock compared with bare requests on the same client, and a hand-over compared with Go's.

#[allow(
    dead_code,
    unused_imports,
    reason = "the library's own messages, of which this needs a few"
)]
#[path = "../../lockkeeper/src/backend/etcd/protocol/mod.rs"]
mod proto;

#[path = "common/timed.rs"]
mod timed;

use anyhow::{Context, Result};
use http::uri::PathAndQuery;
use lockkeeper::Keeper;
use lockkeeper_lab::interop::{Cache, Peer};
use lockkeeper_lab::server::Lab;
use proto::{
    Compare, CompareTarget, DeleteRangeRequest, LeaseGrantRequest, LeaseGrantResponse, PutRequest,
    RangeRequest, Request as Operation, RequestOp, SortOrder, SortTarget, Target, TxnRequest,
    TxnResponse, path,
};
use std::time::{Duration, Instant};
use timed::timed;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const ROUNDS: u32 = 7;
const CYCLES: u32 = 400;
const TASKS: u32 = 64;
const HANDOVERS: usize = 60;

fn main() -> Result<()> {
    let lab = Lab::open()?;
    let server = lab.etcd().start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(cycles(&server.url(), &server.address()))?;
    let ours = runtime.block_on(our_handovers(&server.url()))?;
    drop(runtime);
    let theirs = their_handovers(&server.url())?;
    println!(
        "hand-over, 5 ms holds: p50 {ours:.2?}, Go's mutex {theirs:.2?}: 1/{:.0} (goal: at most 1/20)",
        theirs.as_secs_f64() / ours.as_secs_f64()
    );
    Ok(())
}

/// The bare client, without any lock logic.
#[derive(Clone)]
struct Bare {
    channel: Channel,
    lease: i64,
}

impl Bare {
    async fn connect(address: &str) -> Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let mut bare = Self { channel, lease: 0 };
        let request = LeaseGrantRequest { ttl: 60, id: 0 };
        let granted: LeaseGrantResponse = bare.call(path::LEASE_GRANT, request).await?;
        bare.lease = granted.id;
        Ok(bare)
    }

    async fn call<Q, A>(&self, method: &'static str, question: Q) -> Result<A>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let request = tonic::Request::new(question);
        let answer = client.unary(request, PathAndQuery::from_static(method), codec).await?;
        Ok(answer.into_inner())
    }

    /// The minimum a lock needs: create a key if there is none, read who is first, and delete the
    /// key.
    async fn cycle(&self, name: &str) -> Result<()> {
        let key = format!("bare/{name}/{:x}", self.lease).into_bytes();
        let compare = |revision| Compare {
            target: CompareTarget::Create as i32,
            key: key.clone(),
            against: Some(Target::CreateRevision(revision)),
            ..Compare::default()
        };
        let operation = |request| RequestOp { request: Some(request) };
        let put = PutRequest { key: key.clone(), lease: self.lease, ..PutRequest::default() };
        let first = RangeRequest {
            key: format!("bare/{name}/").into_bytes(),
            range_end: format!("bare/{name}0").into_bytes(),
            limit: 1,
            sort_order: SortOrder::Ascend as i32,
            sort_target: SortTarget::Create as i32,
            ..RangeRequest::default()
        };
        let take = TxnRequest {
            compare: vec![compare(0)],
            success: vec![operation(Operation::Put(put)), operation(Operation::Range(first))],
            failure: Vec::new(),
        };
        let taken: TxnResponse = self.call(path::TXN, take).await?;
        let created = taken.header.context("no header")?.revision;
        let delete = Operation::DeleteRange(DeleteRangeRequest { key: key.clone() });
        let give_back = TxnRequest {
            compare: vec![compare(created)],
            success: vec![operation(delete)],
            failure: Vec::new(),
        };
        let given: TxnResponse = self.call(path::TXN, give_back).await?;
        anyhow::ensure!(taken.succeeded && given.succeeded, "the bare lock is not one");
        Ok(())
    }
}

async fn lock(keeper: &Keeper, name: &str) -> Result<()> {
    Ok(keeper.lock(name).acquire().await?.release().await?)
}

async fn cycles(url: &str, address: &str) -> Result<()> {
    let (bare, keeper) = (Bare::connect(address).await?, lockkeeper::connect(url).await?);
    // Interleaved, so that a busy machine slows both; the best of each counts.
    let (mut one, mut many) = ([Duration::MAX; 2], [Duration::MAX; 2]);
    for _ in 0..ROUNDS {
        let client = bare.clone();
        one[0] = one[0].min(
            timed(1, CYCLES, move |_| {
                let client = client.clone();
                async move { client.cycle("one").await }
            })
            .await?,
        );
        let client = keeper.clone();
        one[1] = one[1].min(
            timed(1, CYCLES, move |_| {
                let client = client.clone();
                async move { lock(&client, "one").await }
            })
            .await?,
        );
        let client = bare.clone();
        let work = move |task: u32| {
            let client = client.clone();
            async move { client.cycle(&format!("many/{task}")).await }
        };
        many[0] = many[0].min(timed(TASKS, CYCLES / 8, work).await?);
        let client = keeper.clone();
        let work = move |task: u32| {
            let client = client.clone();
            async move { lock(&client, &format!("many/{task}")).await }
        };
        many[1] = many[1].min(timed(TASKS, CYCLES / 8, work).await?);
    }
    for (what, [bare, ours]) in [("one task", one), ("64 tasks, 64 names", many)] {
        println!(
            "acquire and release, {what}: {ours:.1?}, bare {bare:.1?}: {:.2} of bare (goal: 0.9)",
            bare.as_secs_f64() / ours.as_secs_f64()
        );
    }
    Ok(())
}

/// From the release to the next hold, by another keeper that has been waiting for 5 ms.
async fn our_handovers(url: &str) -> Result<Duration> {
    let (one, two) = (lockkeeper::connect(url).await?, lockkeeper::connect(url).await?);
    let mut times = Vec::new();
    for _ in 0..HANDOVERS {
        let held = one.lock("handed").acquire().await?;
        let lock = two.lock("handed");
        let next = tokio::spawn(async move {
            let guard = lock.acquire().await;
            (guard, Instant::now())
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
        let begin = Instant::now();
        held.release().await?;
        let (guard, end) = next.await?;
        times.push(end - begin);
        guard?.release().await?;
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn their_handovers(url: &str) -> Result<Duration> {
    let cache = Cache::open()?;
    let start = || Peer::start(cache.go_concurrency()?, url);
    let (mut one, mut two) = (start()?, start()?);
    let mut times = Vec::new();
    for _ in 0..HANDOVERS {
        one.must("lock handed 60000", "held")?;
        two.tell("lock handed 60000")?;
        // The 5 ms, plus the time a peer needs to open its session.
        std::thread::sleep(Duration::from_millis(8));
        let begin = Instant::now();
        one.tell("unlock handed")?;
        two.must_say("held")?;
        times.push(begin.elapsed());
        one.must_say("unlocked")?;
        two.must("unlock handed", "unlocked")?;
    }
    times.sort();
    Ok(times[times.len() / 2])
}
