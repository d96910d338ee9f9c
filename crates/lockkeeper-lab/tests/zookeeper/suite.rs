//! The contract, tried on every recipe and layout.

use anyhow::{Context, Result};
use libtest_mimic::Trial;
use lockkeeper_contract::{Subject, suite, taker};
use lockkeeper_lab::server::Server;
use std::os::unix::fs::PermissionsExt;

/// Set where this program is to be the taker of the suite.
pub(crate) const TAKER: &str = "LOCKKEEPER_ZOOKEEPER_TAKER";

const KINDS: [(&str, &str); 4] = [
    ("fair", "/fair?session=6s"),
    ("kazoo", "/kazoo?session=6s&layout=kazoo"),
    ("barging", "/barging?session=6s&recipe=barging"),
    ("ephemeral", "/ephemeral?session=6s&recipe=ephemeral"),
];

pub(crate) fn take() -> Result<()> {
    taker::main(|url| async move { lockkeeper::open(&url).await });
    Ok(())
}

/// The suite of each, on one server.
pub(crate) fn trials(server: &Server) -> Result<Vec<Trial>> {
    // The suite starts a program without arguments.
    let program = std::env::current_exe()?;
    let taker = server.folder().join("taker");
    let text = format!("#!/bin/sh\n{TAKER}=1 exec '{}'\n", program.display());
    std::fs::write(&taker, text).context("the taker")?;
    std::fs::set_permissions(&taker, std::fs::Permissions::from_mode(0o755))?;
    let subject = |(label, tail): (&str, &str)| {
        Subject::url(&format!("{}{tail}", server.url()), &taker).label(label)
    };
    Ok(KINDS.into_iter().map(subject).flat_map(|subject| suite(&subject)).collect())
}
