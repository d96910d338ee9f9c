//! The contract, tried on every store this machine offers.

mod least;

use least::Least;
use lockkeeper::backend::Backend;
use lockkeeper::backend::memory::Memory;
use lockkeeper_contract::{Subject, suite};
use std::sync::Arc;

const TAKER: &str = env!("CARGO_BIN_EXE_taker");

fn shared(label: &str, store: Arc<dyn Backend>) -> Subject {
    Subject::from_fn(label, move || {
        let handle = store.clone();
        async move { Ok(handle) }
    })
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
    let mut subjects = vec![
        shared("memory", Arc::new(Memory::new())),
        shared("least", Arc::new(Least::new())),
        Subject::url(&format!("sqlite:{}", file.display()), TAKER),
    ];
    let more = std::env::var("LOCKKEEPER_TEST_URL").unwrap_or_default();
    let urls = more.split([',', ' ', '\t', '\n']).filter(|url| !url.is_empty());
    subjects.extend(urls.enumerate().map(|(number, url)| {
        let scheme = url.split(':').next().unwrap_or("store");
        Subject::url(url, TAKER).label(&format!("{scheme}-{number}"))
    }));

    let trials = subjects.iter().flat_map(suite).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(directory);
    conclusion.exit();
}
