//! Full memory and full disks.

use crate::Case;
use anyhow::Result;
use lockkeeper_lab::server::{Kind, Lab, Server, Unsupported};

pub(crate) const CASES: &[Case] = &[
    ("full_memory_refuses_writes", &[Kind::Redis], full_memory),
    ("full_memory_can_forget_keys", &[Kind::Redis], eviction),
    ("a_full_disk_refuses_writes", &[Kind::Redis], full_disk),
    ("a_disk_that_hangs_is_waited_for", &[Kind::Redis], hanging_disk),
    ("memory_is_limited_on_redis_only", &[Kind::Memcached], only_redis),
];

/// Writes until the server refuses, and returns how it put that.
fn write_until_refused(server: &Server, times: usize) -> Result<Option<String>> {
    let value = "x".repeat(10_000);
    let mut redis = server.redis()?;
    for number in 0..times {
        if let Err(error) = redis.ask(&["SET", &format!("key:{number}"), &value]) {
            return Ok(Some(error.to_string()));
        }
    }
    Ok(None)
}

fn full_memory(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    server.limit_memory(4 << 20, "noeviction")?;
    let refused = write_until_refused(&server, 1000)?;
    assert!(refused.as_ref().is_some_and(|error| error.starts_with("OOM")), "{refused:?}");
    server.limit_memory(0, "noeviction")?;
    assert_eq!(write_until_refused(&server, 1000)?, None);
    Ok(())
}

fn eviction(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    server.limit_memory(4 << 20, "allkeys-random")?;
    assert_eq!(write_until_refused(&server, 2000)?, None);
    let left = server.redis()?.ask(&["DBSIZE"])?.number();
    assert!(left.is_some_and(|left| left > 0 && left < 1000), "{left:?}");
    Ok(())
}

fn full_disk(lab: &Lab) -> Result<()> {
    let plan = lab.redis().config("appendonly yes").disk(32 << 20);
    let server = match plan.start() {
        Ok(server) => server,
        Err(error) => {
            assert!(error.is::<Unsupported>(), "{error:?}");
            assert!(!nix::unistd::geteuid().is_root(), "root may mount: {error:?}");
            println!("not shown here: {error}");
            return Ok(());
        }
    };
    assert_eq!(write_until_refused(&server, 100)?, None);
    server.fill_disk()?;
    let refused = write_until_refused(&server, 1000)?;
    assert!(refused.as_ref().is_some_and(|error| error.starts_with("MISCONF")), "{refused:?}");
    server.free_disk()?;
    crate::eventually("writes are taken again", || Ok(write_until_refused(&server, 10)?.is_none()));
    let mount = server.place().data().display().to_string();
    assert!(std::fs::read_to_string("/proc/mounts")?.contains(&mount));
    drop(server);
    assert!(!std::fs::read_to_string("/proc/mounts")?.contains(&mount));
    Ok(())
}

fn hanging_disk(lab: &Lab) -> Result<()> {
    let server = match lab
        .redis()
        .config("appendonly yes")
        .config("appendfsync always")
        .hanging_disk()
        .start()
    {
        Ok(server) => server,
        Err(error) => {
            assert!(error.is::<Unsupported>(), "{error:?}");
            assert!(!nix::unistd::geteuid().is_root(), "root may mount: {error:?}");
            println!("not shown here: {error}");
            return Ok(());
        }
    };
    assert_eq!(write_until_refused(&server, 10)?, None);
    let mount = server.place().data().display().to_string();
    server.hang_disk()?;
    let late = std::thread::scope(|scope| {
        let writing = scope.spawn(|| server.redis()?.ask(&["SET", "key", "late"]).map(|_| ()));
        std::thread::sleep(std::time::Duration::from_millis(500));
        let late = !writing.is_finished();
        server.mend_disk()?;
        writing.join().expect("no panic")?;
        anyhow::Ok(late)
    })?;
    assert!(late, "it wrote to a disk that hung");
    assert_eq!(write_until_refused(&server, 10)?, None);
    // Hanging or not, it can be ended, and leaves no mount behind.
    server.hang_disk()?;
    drop(server);
    assert!(!std::fs::read_to_string("/proc/mounts")?.contains(&mount));
    Ok(())
}

fn only_redis(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    assert!(server.limit_memory(1, "noeviction").expect_err("not Redis").is::<Unsupported>());
    assert!(server.fill_disk().expect_err("no disk").is::<Unsupported>());
    Ok(())
}
