//! Who tries when something is said, and what becomes of a lost connection.

use crate::stage::Stage;
use lockkeeper::ErrorKind;
use std::time::{Duration, Instant};

const CHANNEL: &str = "redisson_lock__channel:{a}";
/// Sooner than anyone who was not told would look again.
const SOON: Duration = Duration::from_millis(2500);

fn hold(stage: &mut Stage) {
    stage.command::<()>("HSET a 6cd1bd60-1b2a-4c1c-9b6a-6b7f5a1c3a55:31 1");
    stage.command::<()>("PEXPIRE a 60000");
}

/// How many listen, once some do.
async fn listeners(stage: &mut Stage) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (_, number): (String, usize) = stage.command(&format!("PUBSUB NUMSUB {CHANNEL}"));
        if number > 0 || Instant::now() > deadline {
            return number;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn scripts_run(stage: &mut Stage) -> u64 {
    let info: String = stage.command("INFO commandstats");
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    let calls = line.split([':', ',']).find_map(|word| word.strip_prefix("calls="));
    calls.unwrap().parse().unwrap()
}

#[tokio::test]
async fn of_those_who_wait_in_one_keeper_one_tries() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    hold(&mut stage);
    let mut waiters = Vec::new();
    for _ in 0..20 {
        let lock = keeper.lock("a");
        waiters.push(tokio::spawn(async move {
            lock.acquire_within(Duration::from_secs(20)).await.map(drop)
        }));
    }
    assert_eq!(listeners(&mut stage).await, 1);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = scripts_run(&mut stage);
    stage.command::<()>(&format!("PUBLISH {CHANNEL} 0"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let tries = scripts_run(&mut stage) - before;
    assert!((1..=2).contains(&tries), "{tries} of 20 tried");
    let freed = Instant::now();
    stage.command::<()>("DEL a");
    stage.command::<()>(&format!("PUBLISH {CHANNEL} 0"));
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    assert!(freed.elapsed() < SOON, "all of them took {:?}", freed.elapsed());
}

#[tokio::test]
async fn a_lost_subscription_is_made_again() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    hold(&mut stage);
    let lock = keeper.lock("a");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    assert_eq!(listeners(&mut stage).await, 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    for _ in 0..3 {
        assert_eq!(stage.command::<usize>("CLIENT KILL TYPE pubsub"), 1);
        assert_eq!(listeners(&mut stage).await, 1);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiter.is_finished());
    let freed = Instant::now();
    stage.command::<()>("DEL a");
    stage.command::<()>(&format!("PUBLISH {CHANNEL} 0"));
    let guard = waiter.await.unwrap().unwrap();
    assert!(freed.elapsed() < SOON, "it was found free after {:?}", freed.elapsed());
    guard.release().await.unwrap();
}

/// What was said while nobody listened is found out by looking again.
#[tokio::test]
async fn what_is_said_while_the_connection_is_lost_is_not_missed() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    hold(&mut stage);
    let lock = keeper.lock("a");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    assert_eq!(listeners(&mut stage).await, 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let freed = Instant::now();
    redis::pipe()
        .atomic()
        .cmd("CLIENT")
        .arg(&["KILL", "TYPE", "pubsub"])
        .del("a")
        .query::<()>(&mut stage.redis)
        .unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(freed.elapsed() < SOON, "it was found free after {:?}", freed.elapsed());
}

#[tokio::test]
async fn channels_nobody_listens_to_are_given_up() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    for number in 0..50 {
        let name = format!("name-{number}");
        let held = keeper.lock(&name).acquire().await.unwrap();
        let wait = keeper.lock(&name).acquire_within(Duration::from_millis(20)).await;
        assert!(wait.is_err());
        held.release().await.unwrap();
    }
    let channels: Vec<String> = stage.command("PUBSUB CHANNELS redisson*");
    assert!(channels.len() <= 2 + 32, "{} channels are still subscribed to", channels.len());
}

/// To poll instead would be to hide it.
#[tokio::test]
async fn one_who_may_not_listen_is_told() {
    let mut stage = Stage::new();
    let (keeper, _) = stage.keeper().await;
    hold(&mut stage);
    stage.command::<()>("ACL SETUSER default resetchannels &lockkeeper:*");
    let before = Instant::now();
    let error = keeper.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(before.elapsed() < Duration::from_secs(8), "it took {:?}", before.elapsed());
}
