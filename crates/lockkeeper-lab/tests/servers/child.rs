//! What this very program does when a test starts it again.

use anyhow::{Result, bail};
use lockkeeper_lab::server::{Kind, Lab};
use std::time::Duration;

/// The environment variable that says which part to play.
pub(crate) const PART: &str = "LOCKKEEPER_LAB_TEST_PART";

pub(crate) fn play(part: &str) -> Result<()> {
    let lab = Lab::open()?;
    match part {
        "panic" => {
            let _redis = lab.redis().start()?;
            panic!("on purpose");
        }
        "shared" => {
            println!("{}", lab.shared(Kind::Redis)?);
            Ok(())
        }
        // Says where it is before it starts anything, so that it can be killed meanwhile.
        "start" => {
            println!("{}", lab.folder().display());
            start_all(&lab)
        }
        other => bail!("there is no part {other}"),
    }
}

fn start_all(lab: &Lab) -> Result<()> {
    let mut servers = std::thread::scope(|scope| {
        let threads = Kind::ALL.map(|kind| scope.spawn(move || lab.start(kind)));
        threads.into_iter().map(|it| it.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    if nix::unistd::geteuid().is_root() {
        servers.push(lab.redis().disk(1 << 20).start()?);
    }
    let postgres = lab.postgres().start()?;
    postgres.pause()?;
    println!("ready");
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}
