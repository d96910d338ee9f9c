//! quick figures
use lockkeeper::Keeper;
use redis::aio::MultiplexedConnection;
use std::time::{Duration, Instant};

async fn bare(c: &mut MultiplexedConnection, script: &redis::Script, key: &str, id: &str) {
    let _: redis::Value = redis::cmd("SET")
        .arg(key)
        .arg(id)
        .arg("NX")
        .arg("PX")
        .arg(30000)
        .query_async(c)
        .await
        .unwrap();
    let _: i64 = script.key(key).arg(id).invoke_async(c).await.unwrap();
}
async fn ours(k: &Keeper, name: &str) {
    let g = k.lock(name).acquire().await.unwrap();
    g.release().await.unwrap();
}

#[tokio::main]
async fn main() {
    let url = std::env::var("URL").unwrap_or("redis://127.0.0.1:7391".into());
    let keeper = lockkeeper::connect(&url).await.unwrap();
    use redis::IntoConnectionInfo;
    let info = url.as_str().into_connection_info().unwrap();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(tcp)).unwrap();
    let conf =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(2)));
    let mut c = client.get_multiplexed_async_connection_with_config(&conf).await.unwrap();
    let script = redis::Script::new(
        "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end",
    );
    for round in 0..4 {
        let n = 5000;
        let t = Instant::now();
        for _ in 0..n {
            bare(&mut c, &script, "bare", "0123456789abcdef0123456789abcdef").await;
        }
        let b = t.elapsed();
        let k = keeper.clone();
        let t = Instant::now();
        tokio::spawn(async move {
            for _ in 0..n {
                ours(&k, "ours").await;
            }
        })
        .await
        .unwrap();
        let o = t.elapsed();
        let mut set = Vec::new();
        let t = Instant::now();
        for i in 0..64 {
            let mut c = c.clone();
            let script = script.clone();
            set.push(tokio::spawn(async move {
                let key = format!("bare{i}");
                for _ in 0..400 {
                    bare(&mut c, &script, &key, "0123456789abcdef0123456789abcdef").await;
                }
            }));
        }
        for s in set {
            s.await.unwrap();
        }
        let b64 = t.elapsed();
        let mut set = Vec::new();
        let t = Instant::now();
        for i in 0..64 {
            let k = keeper.clone();
            set.push(tokio::spawn(async move {
                let key = format!("ours{i}");
                for _ in 0..400 {
                    ours(&k, &key).await;
                }
            }));
        }
        for s in set {
            s.await.unwrap();
        }
        let o64 = t.elapsed();
        let mut set = Vec::new();
        let t = Instant::now();
        for _ in 0..16 {
            let k = keeper.clone();
            set.push(tokio::spawn(async move {
                let mut w = Vec::new();
                for _ in 0..400 {
                    let t = Instant::now();
                    let g = k.lock("hot").acquire().await.unwrap();
                    w.push(t.elapsed());
                    g.release().await.unwrap();
                }
                w
            }));
        }
        let mut waits = Vec::new();
        for s in set {
            waits.extend(s.await.unwrap());
        }
        let hot = t.elapsed();
        let mean = waits.iter().sum::<Duration>() / waits.len() as u32;
        println!(
            "{round}: one {:.2} ({:?} vs {:?})  64: {:.2} ({:?} {:?})  hot: {:.0}/s max/mean {:.1}",
            b.as_secs_f64() / o.as_secs_f64(),
            b / n,
            o / n,
            b64.as_secs_f64() / o64.as_secs_f64(),
            b64 / (64 * 400),
            o64 / (64 * 400),
            6400.0 / hot.as_secs_f64(),
            waits.iter().max().unwrap().as_secs_f64() / mean.as_secs_f64()
        );
    }
}
