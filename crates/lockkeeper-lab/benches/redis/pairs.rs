//! Acquire and release without contention.

use crate::figures::{compared, each, median, speed};
use anyhow::Result;
use lockkeeper::Keeper;
use lockkeeper_lab::interop::{Cache, Peer};
use redis::IntoConnectionInfo;
use redis::aio::MultiplexedConnection;
use std::time::Duration;

const ROUNDS: usize = 9;
const VALUE: &str = "0123456789abcdef0123456789abcdef";
const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The minimum that gives a token: the server's clock, and the last token is stored.
const TAKE_NUMBERED: &str = "
    local value, clock = redis.call('GET', KEYS[1]), redis.call('TIME')
    if value and string.byte(value) == 88 then return 0 end
    local token = clock[1] .. string.sub('00000' .. clock[2], -6)
    redis.call('SET', KEYS[1], 'X' .. ARGV[1] .. token, 'PX', ARGV[2])
    return token";
const FREE_NUMBERED: &str = "
    local value = redis.call('GET', KEYS[1])
    if string.sub(value, 2, 33) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], 'F' .. string.sub(value, 34), 'PX', '60000')
    return 1";

/// The minimal lock: SET NX PX, and a script that deletes only its own value; or two scripts, if a
/// token is wanted.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    free: redis::Script,
    take_numbered: redis::Script,
    free_numbered: redis::Script,
}

impl Bare {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let info = url.into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(tcp))?;
        let config =
            redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(2)));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let [free, take_numbered, free_numbered] =
            [FREE, TAKE_NUMBERED, FREE_NUMBERED].map(redis::Script::new);
        Ok(Self { connection, free, take_numbered, free_numbered })
    }

    async fn pairs(mut self, key: String, count: u32) {
        for _ in 0..count {
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(VALUE).arg("NX").arg("PX").arg(30_000);
            set.query_async::<()>(&mut self.connection).await.expect("set");
            let mut free = self.free.prepare_invoke();
            let freed = free.key(&key).arg(VALUE).invoke_async::<i64>(&mut self.connection).await;
            assert_eq!(freed.expect("freed"), 1);
        }
    }
}

impl Bare {
    async fn numbered_pairs(mut self, key: String, count: u32) {
        for _ in 0..count {
            let mut take = self.take_numbered.prepare_invoke();
            let taken =
                take.key(&key).arg(VALUE).arg(30_000).invoke_async::<u64>(&mut self.connection);
            assert_ne!(taken.await.expect("taken"), 0);
            let mut free = self.free_numbered.prepare_invoke();
            let freed = free.key(&key).arg(VALUE).invoke_async::<i64>(&mut self.connection);
            assert_eq!(freed.await.expect("freed"), 1);
        }
    }
}

async fn ours(keeper: Keeper, name: String, count: u32) {
    for _ in 0..count {
        let guard = keeper.lock(&name).acquire().await.expect("acquired");
        guard.release().await.expect("released");
    }
}

async fn rslock(manager: rslock::LockManager, name: String, count: u32) {
    for _ in 0..count {
        let ttl = Duration::from_secs(30);
        let lock = manager.acquire_no_guard(name.as_bytes(), ttl).await.expect("acquired");
        manager.unlock(&lock).await;
    }
}

/// This many tasks at once, each with its own name.
async fn all<F: Future<Output = ()> + Send + 'static>(tasks: u32, make: impl Fn(String) -> F) {
    let tasks: Vec<_> =
        (0..tasks).map(|task| tokio::spawn(make(format!("bench/{task}")))).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

fn compare(url: &str, tasks: u32, count: u32, least: f64) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let keeper = lockkeeper::connect(url).await?;
        let bare = Bare::open(url).await?;
        let manager = rslock::LockManager::new(vec![url.to_owned()]);
        let [mut mine, mut floor, mut numbered, mut theirs] = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            let turns = count * tasks;
            mine.push(each(turns, all(tasks, |name| ours(keeper.clone(), name, count))).await);
            let run = || all(tasks, |name| bare.clone().pairs(format!("bare/{name}"), count));
            floor.push(each(turns, run()).await);
            let run =
                || all(tasks, |name| bare.clone().numbered_pairs(format!("num/{name}"), count));
            numbered.push(each(turns, run()).await);
            let peer = || all(tasks, |name| rslock(manager.clone(), format!("rs/{name}"), count));
            theirs.push(each(turns, peer()).await);
        }
        let (mine, what) = (median(mine), format!("acquire + release, {tasks} tasks and names"));
        speed(&format!("{what}: of bare commands"), mine, median(floor), least);
        let (numbered, theirs) = (median(numbered), median(theirs));
        compared(&format!("{what}: of two bare scripts with a token"), mine, numbered);
        compared(&format!("{what}: those scripts, of rslock"), numbered, theirs);
        speed(&format!("{what}: of rslock"), mine, theirs, 1.0);
        Ok(())
    })
}

pub(crate) fn one_task(url: &str) -> Result<()> {
    compare(url, 1, 1500, 0.9)
}

pub(crate) fn many_tasks(url: &str) -> Result<()> {
    compare(url, 64, 80, 0.5)
}

/// redis-py, one lock after another.
pub(crate) fn python(url: &str) -> Result<()> {
    const COUNT: u32 = 1500;
    let mut peer = Peer::start(Cache::open()?.redis_py()?, url)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let keeper = runtime.block_on(lockkeeper::connect(url))?;
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        mine.push(runtime.block_on(each(COUNT, ours(keeper.clone(), "bench".to_owned(), COUNT))));
        theirs.push(peer.bench("python", COUNT)? / COUNT);
    }
    speed("acquire + release, 1 task: of redis-py", median(mine), median(theirs), 1.0);
    Ok(())
}
