//! Ids while processes, clocks, the network and the store are broken: short runs of the lab, and single
//! properties by hand. `LOCKKEEPER_LAB_SECONDS=60` makes the runs longer.

mod leases;
mod runs;
mod sequences;

use anyhow::Result;
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::arguments;
use std::sync::Arc;

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let mut trials = runs::trials();
    trials.extend(sequences::trials(&lab));
    trials.extend(leases::trials(&lab));
    // They mostly wait.
    let conclusion = libtest_mimic::run(&arguments(8), trials);
    drop(lab);
    conclusion.exit();
}
