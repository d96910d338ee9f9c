//! Clocks of their own.

use crate::{Case, eventually};
use anyhow::{Context, Result};
use lockkeeper_lab::server::wire::{mariadb, postgres};
use lockkeeper_lab::server::{Kind, Lab, Unsupported};
use std::time::{Duration, Instant, SystemTime};

pub(crate) const CASES: &[Case] = &[
    ("a_jump_of_its_clock_frees_a_redis_key", &[Kind::Redis], redis_jump),
    ("a_redis_clock_runs_faster", &[Kind::Redis], redis_rate),
    ("postgres_and_mariadb_see_their_own_clock", &[Kind::Postgres, Kind::MariaDb], databases),
    ("a_clock_that_cannot_be_set_is_refused", &Kind::ALL, refused),
];

const HOUR: Duration = Duration::from_secs(3600);

fn redis_jump(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    let take = |who: &str| {
        let taken = server.redis()?.ask(&["SET", "lock", who, "NX", "PX", "30000"])?;
        Ok::<_, anyhow::Error>(taken.text() == Some("OK"))
    };
    assert!(take("first")?);
    server.set_clock_ahead(Duration::from_secs(20))?;
    assert!(!take("early")?);
    server.set_clock_ahead(Duration::from_secs(40))?;
    assert!(take("second")?);
    server.set_clock_back(Duration::from_secs(60))?;
    let left = server.redis()?.ask(&["PTTL", "lock"])?.number().context("a number")?;
    assert!(left > 120_000, "{left}");
    // What was set survives a restart.
    server.restart()?;
    assert!(take("third")?);
    assert!((redis_ahead(&server)? + 60.0).abs() < 2.0);
    Ok(())
}

fn redis_ahead(server: &lockkeeper_lab::server::Server) -> Result<f64> {
    let said = server.redis()?.ask(&["TIME"])?;
    let seconds = said.list().and_then(|parts| parts[0].text()).context("a time")?;
    Ok(seconds.parse::<f64>()? - now())
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a date after 1970").as_secs_f64()
}

fn redis_rate(lab: &Lab) -> Result<()> {
    let server = lab.redis().clock().start()?;
    server.set_clock_ahead(HOUR)?;
    std::thread::sleep(Duration::from_millis(1500));
    server.set_clock_rate(10.0)?;
    let ahead = redis_ahead(&server)?;
    assert!((ahead - 3600.0).abs() < 5.0, "the change of rate was a jump: {ahead}");
    let begin = Instant::now();
    server.redis()?.ask(&["SET", "a", "1", "PX", "20000"])?;
    eventually("the key runs out", || Ok(server.redis()?.ask(&["GET", "a"])?.text().is_none()));
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(15), "{took:?}");
    Ok(())
}

fn databases(lab: &Lab) -> Result<()> {
    let postgres = lab.postgres().clock().start()?;
    let mariadb = lab.mariadb().clock().start()?;
    let ahead = || {
        let one = postgres::query(postgres.port(), "SELECT extract(epoch FROM now())")?;
        let two = mariadb::query(mariadb.port(), "SELECT unix_timestamp()")?;
        Ok::<_, anyhow::Error>([one[0].parse::<f64>()? - now(), two[0].parse::<f64>()? - now()])
    };
    assert!(ahead()?.iter().all(|by| by.abs() < 5.0), "{:?}", ahead()?);
    postgres.set_clock_ahead(HOUR)?;
    mariadb.set_clock_ahead(HOUR)?;
    assert!(ahead()?.iter().all(|by| (by - 3600.0).abs() < 5.0), "{:?}", ahead()?);
    postgres.set_clock_back(HOUR)?;
    mariadb.set_clock_back(HOUR)?;
    assert!(ahead()?.iter().all(|by| (by + 3600.0).abs() < 5.0), "{:?}", ahead()?);
    Ok(())
}

fn refused(lab: &Lab) -> Result<()> {
    for refused in [
        lab.etcd().clock().start(),
        lab.zookeeper().clock().start(),
        lab.memcached().clock().start(),
    ] {
        let error = refused.expect_err("no clock of its own");
        assert!(error.is::<Unsupported>(), "{error:?}");
        assert!(error.to_string().contains("cannot be set"), "{error}");
    }
    let plain = lab.redis().start()?;
    assert!(plain.set_clock_ahead(HOUR).expect_err("no clock").is::<Unsupported>());
    Ok(())
}
