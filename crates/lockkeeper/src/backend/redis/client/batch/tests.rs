//! Batching over a connection to an echo server, on current-thread and multi-thread runtimes. The
//! tests that count packets depend on tokio waking deferred wakers when a worker is idle.

use super::*;
use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, cmd};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

/// The other end of the connection: reports what arrives and answers with it, like ECHO.
async fn echo(stream: DuplexStream, arrived: mpsc::UnboundedSender<String>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let words: usize = line.trim_start_matches('*').trim().parse().unwrap();
        let mut word = Vec::new();
        for _ in 0..words {
            line.clear();
            stream.read_line(&mut line).await?;
            word = vec![0; line.trim_start_matches('$').trim().parse().unwrap()];
            stream.read_exact(&mut word).await?;
            stream.read_line(&mut line).await?;
        }
        let word = String::from_utf8(word).unwrap();
        stream.write_all(format!("+{word}\r\n").as_bytes()).await?;
        let _ = arrived.send(word);
    }
}

/// A batch, its connection, and what arrived at the other end.
struct Stage {
    batch: Arc<Batch>,
    connection: MultiplexedConnection,
    arrived: mpsc::UnboundedReceiver<String>,
}

impl Stage {
    async fn new() -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (tell, mut arrived) = mpsc::unbounded_channel();
        tokio::spawn(echo(theirs, tell));
        let info = RedisConnectionInfo::default();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&info, ours, AsyncConnectionConfig::new())
                .await
                .unwrap();
        tokio::spawn(driver);
        let (_, none) = mpsc::unbounded_channel();
        let stage = Self { batch: Arc::default(), connection, arrived: none };
        assert_eq!(stage.send("hello").await.unwrap(), said("hello"));
        while arrived.recv().await.unwrap() != "hello" {}
        Self { arrived, ..stage }
    }

    fn send(&self, word: &'static str) -> impl Future<Output = RedisResult<Value>> + use<> {
        let (batch, connection) = (self.batch.clone(), self.connection.clone());
        async move {
            let mut command = cmd("ECHO");
            command.arg(word);
            batch.send(connection, command).await
        }
    }

    /// As if another were under way.
    fn busy(&self) -> UnderWay {
        UnderWay::begin(&self.batch).0
    }

    /// The next words that arrive, in order.
    async fn arrived(&mut self, count: usize) -> Vec<String> {
        let mut words = Vec::new();
        for _ in 0..count {
            let next = tokio::time::timeout(Duration::from_secs(20), self.arrived.recv());
            words.extend(next.await.expect("it arrives"));
        }
        words
    }
}

/// The answer of the echo.
fn said(word: &str) -> Value {
    Value::SimpleString(word.to_owned())
}

/// The common case of a keeper with little to do: batching must not cost it anything.
#[tokio::test]
async fn what_is_alone_is_sent_at_once() {
    let stage = Stage::new().await;
    let mut alone = pin!(stage.send("alone"));
    assert!(alone.as_mut().now_or_never().is_none());
    assert!(lock(&stage.batch.waiting).commands.is_empty());
    assert_eq!(alone.await.unwrap(), said("alone"));
}

/// Sent together, answered one by one.
#[tokio::test]
async fn each_gets_its_own_answer() {
    let mut stage = Stage::new().await;
    let _busy = stage.busy();
    let (one, two, three) = tokio::join!(stage.send("1"), stage.send("2"), stage.send("3"));
    assert_eq!([one.unwrap(), two.unwrap(), three.unwrap()], ["1", "2", "3"].map(said));
    assert_eq!(stage.arrived(3).await, ["1", "2", "3"]);
    assert_eq!(stage.batch.under_way.load(Ordering::Relaxed), 1, "all are done but one");
}

/// The second finds nothing under way, and could be sent at once: but the first still waits.
#[tokio::test]
async fn none_overtakes_another() {
    let mut stage = Stage::new().await;
    let busy = stage.busy();
    let mut claim = pin!(stage.send("claim"));
    assert!(claim.as_mut().now_or_never().is_none());
    drop(busy);
    let mut withdrawal = pin!(stage.send("withdrawal"));
    // Polled more than once, as in a select.
    assert!(withdrawal.as_mut().now_or_never().is_none());
    assert!(withdrawal.as_mut().now_or_never().is_none());
    assert_eq!(withdrawal.await.unwrap(), said("withdrawal"));
    assert_eq!(stage.arrived(2).await, ["claim", "withdrawal"]);
}

/// A claim that is dropped before it was sent may be sent or not; but never after its withdrawal, which
/// would leave a lock that nobody has.
#[tokio::test]
async fn what_nobody_waits_for_does_not_come_later() {
    let mut stage = Stage::new().await;
    let busy = stage.busy();
    let mut claim = Box::pin(stage.send("claim"));
    assert!(claim.as_mut().now_or_never().is_none());
    drop((claim, busy));
    assert_eq!(stage.send("withdrawal").await.unwrap(), said("withdrawal"));
    assert_eq!(stage.send("last").await.unwrap(), said("last"));
    let arrived = stage.arrived(2).await;
    assert!(arrived == ["withdrawal", "last"] || arrived == ["claim", "withdrawal"], "{arrived:?}");
    assert_eq!(stage.batch.under_way.load(Ordering::Relaxed), 0);
}

/// A future in a `select!` may not be polled for a long time: the batch must not depend on it.
#[tokio::test]
async fn one_that_is_not_polled_on_holds_up_nobody() {
    let mut stage = Stage::new().await;
    let _busy = stage.busy();
    let mut idle = pin!(stage.send("idle"));
    assert!(idle.as_mut().now_or_never().is_none());
    let busy = tokio::time::timeout(Duration::from_secs(20), stage.send("busy"));
    assert_eq!(busy.await.expect("no wait for the other").unwrap(), said("busy"));
    assert_eq!(stage.arrived(2).await, ["idle", "busy"]);
    assert_eq!(idle.await.unwrap(), said("idle"));
}

/// The server can begin with the first of them while others still come.
#[tokio::test]
async fn enough_do_not_wait_for_more() {
    let mut stage = Stage::new().await;
    let _busy = stage.busy();
    let mut all: Vec<_> = (0..ENOUGH).map(|_| Box::pin(stage.send("one"))).collect();
    assert!(all[0].as_mut().now_or_never().is_none());
    assert_eq!(lock(&stage.batch.waiting).commands.len(), 1);
    for one in &mut all[1..] {
        assert!(one.as_mut().now_or_never().is_none());
    }
    assert!(lock(&stage.batch.waiting).commands.is_empty());
    assert_eq!(stage.arrived(ENOUGH).await.len(), ENOUGH);
}

/// Should the runtime that was to send a command end, the command fails; a wait without an end would
/// keep a claim from being withdrawn.
#[tokio::test]
async fn who_waits_on_a_runtime_that_ended_is_told() {
    let stage = Stage::new().await;
    let _busy = stage.busy();
    let mut cut_off = Box::pin(stage.send("never"));
    let begun = &mut cut_off;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
            // It asks the runtime to send when it is idle, which it never is again.
            other.block_on(async { assert!(begun.as_mut().now_or_never().is_none()) });
            drop(other);
        });
    });
    let answer = tokio::time::timeout(Duration::from_secs(20), cut_off).await;
    let answer = answer.expect("it is told");
    assert!(answer == Ok(said("never")) || answer.is_err_and(|error| error.kind() == Cause::Io));
}

/// A worker of another runtime sends what it finds: also commands of tasks that outlive it.
#[tokio::test]
async fn one_that_another_runtime_sent_outlives_it() {
    let stage = Stage::new().await;
    let _busy = stage.busy();
    let mut mine = Box::pin(stage.send("mine"));
    assert!(mine.as_mut().now_or_never().is_none());
    let mut theirs = Box::pin(stage.send("theirs"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            other.block_on(async {
                assert!(theirs.as_mut().now_or_never().is_none());
                tokio::task::yield_now().await;
            });
            assert!(lock(&stage.batch.waiting).commands.is_empty(), "they are sent there");
        });
    });
    assert_eq!(mine.await.unwrap(), said("mine"));
}

/// The thread with the first command is busy with something else; the next command does not wait
/// for it.
#[tokio::test]
async fn none_waits_long_for_a_runtime_that_is_busy_elsewhere() {
    let mut stage = Stage::new().await;
    let _busy = stage.busy();
    let mut first = pin!(stage.send("first"));
    assert!(first.as_mut().now_or_never().is_none());
    assert_eq!(lock(&stage.batch.waiting).commands.len(), 1);
    // The runtime's only thread, which would send it when it has nothing else to do.
    std::thread::sleep(2 * LONG);
    let mut second = pin!(stage.send("second"));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(lock(&stage.batch.waiting).commands.is_empty(), "the next caller sends it");
    assert_eq!(stage.arrived(2).await, ["first", "second"]);
}
