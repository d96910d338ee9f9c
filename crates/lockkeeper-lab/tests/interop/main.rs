//! Do we and other libraries keep each other out? `cargo test -p lockkeeper-lab --test interop`
//!
//! The others are small programs of ours around each library, in the folder `interop` of this
//! crate, told what to do by lines on their input, with the URL of the store as argument.

mod ours;
mod peer;
mod redisson;
mod server;

use server::Server;
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, url] = &words[..]
        && word == "peer"
    {
        ours::serve(url)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut arguments = libtest_mimic::Arguments::from_args();
    // They mostly wait; but each has a Java machine of its own.
    arguments.test_threads.get_or_insert(2);
    let server = Server::start()?;
    let conclusion = libtest_mimic::run(&arguments, redisson::trials(&server.url()));
    drop(server);
    Ok(conclusion.exit_code())
}
