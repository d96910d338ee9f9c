//! The contract, tried on every store this machine offers.

mod historic;
mod least;

use least::Least;
use libtest_mimic::Trial;
use lockkeeper::backend::Backend;
use lockkeeper::backend::memory::Memory;
use lockkeeper_contract::{Subject, suite, suite_of_flawed};
use lockkeeper_lab::stores::{STORES, Variant};
use std::sync::Arc;

const TAKER: &str = env!("CARGO_BIN_EXE_taker");

fn shared(label: &str, store: Arc<dyn Backend>) -> Subject {
    Subject::from_fn(label, move || {
        let handle = store.clone();
        async move { Ok(handle) }
    })
}

/// Every way in which the servers are tried that `cargo xtask test` has started.
fn of_the_lab() -> Vec<(String, String)> {
    let mut urls = Vec::new();
    for store in STORES {
        let Ok(server) = std::env::var(store.kind.variable()) else { continue };
        let url = |it: &Variant| (format!("{server}{}", it.tail), it.label.to_owned());
        urls.extend(store.contract.iter().map(url));
    }
    urls
}

fn trials_of(url: &str, label: &str) -> Vec<Trial> {
    let subject = Subject::url(url, TAKER).label(label);
    match historic::broken_by(url) {
        Some(broken) => suite_of_flawed(&subject, broken),
        None => suite(&subject),
    }
}

fn main() {
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Cases mostly wait, so more of them at once than there are cores.
    arguments.test_threads.get_or_insert(8);

    let directory = match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => panic!("there is no place for a store: {error}"),
    };
    let file = directory.path().join("locks.db");
    let subjects = [
        shared("memory", Arc::new(Memory::new())),
        shared("least", Arc::new(Least::new())),
        Subject::url(&format!("sqlite:{}", file.display()), TAKER),
    ];
    let more = std::env::var("LOCKKEEPER_TEST_URL").unwrap_or_default();
    let more = more.split([',', ' ', '\t', '\n']).filter(|url| !url.is_empty());
    let more = more.enumerate().map(|(number, url)| {
        let scheme = url.split(':').next().unwrap_or("store");
        (url.to_owned(), format!("{scheme}-{number}"))
    });
    let urls = of_the_lab().into_iter().chain(more);

    let mut trials: Vec<Trial> = subjects.iter().flat_map(suite).collect();
    trials.extend(urls.flat_map(|(url, label)| trials_of(&url, &label)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(directory);
    conclusion.exit();
}
