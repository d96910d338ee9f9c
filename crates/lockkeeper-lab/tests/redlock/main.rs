//! `redlock://` on five real servers, of which some are killed, paused, emptied, set to another time or
//! cut off.

mod clocks;
mod contenders;
mod handover;
mod interop;
mod network;
mod nodes;
mod opening;
mod restarts;
mod stage;

use anyhow::Result;
use lockkeeper_lab::server::{Kind, Lab};
use lockkeeper_lab::trials::{arguments, trials};
use std::sync::Arc;

fn main() -> Result<()> {
    let lab = Arc::new(Lab::open()?);
    let cases = [
        clocks::CASES,
        contenders::CASES,
        handover::CASES,
        network::CASES,
        nodes::CASES,
        opening::CASES,
        restarts::CASES,
        interop::CASES,
    ];
    let trials = trials(&lab, Kind::Redis, &cases);
    let conclusion = libtest_mimic::run(&arguments(3), trials);
    drop(lab);
    conclusion.exit();
}
