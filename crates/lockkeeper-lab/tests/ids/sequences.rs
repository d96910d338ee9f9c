//! Sequences on every store, and keys of two kinds.

use anyhow::{Result, ensure};
use libtest_mimic::{Failed, Trial};
use lockkeeper::ErrorKind;
use lockkeeper::id::{Generator, Layout};
use lockkeeper_lab::ids::given;
use lockkeeper_lab::server::{Kind, Lab, missing};
use lockkeeper_lab::stores::STORES;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const COUNT: usize = 500;

pub(crate) fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let stores = STORES.iter().map(|store| store.kind).filter(|kind| *kind != Kind::Redlock);
    let on_each = stores.flat_map(|kind| {
        let (one, two) = (lab.clone(), lab.clone());
        [
            needing(kind, format!("{kind}::two_processes_grow_strictly"), move || {
                let url = one.shared(kind)?;
                grows_strictly(&url)
            }),
            needing(kind, format!("{kind}::another_layout_is_refused"), move || {
                let url = two.shared(kind)?;
                tokio::runtime::Runtime::new()?.block_on(refused(&url))
            }),
        ]
    });
    let mut trials: Vec<_> = on_each.collect();
    trials.push(Trial::test("sqlite::two_processes_grow_strictly", || {
        let folder = tempfile::tempdir()?;
        let url = format!("sqlite:{}", folder.path().join("ids.db").display());
        grows_strictly(&url).map_err(|error| Failed::from(format!("{error:?}")))
    }));
    trials
}

pub(crate) fn needing(
    kind: Kind,
    name: String,
    case: impl FnOnce() -> Result<()> + Send + 'static,
) -> Trial {
    let trial = Trial::test(name, || case().map_err(|error| Failed::from(format!("{error:?}"))));
    match missing(&[kind]) {
        Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
        None => trial,
    }
}

/// A process of the lab that takes ids into a file until its standard input is closed.
pub(crate) fn process(
    scheme: &str,
    store: &str,
    window_ms: u64,
    file: &Path,
    more: &[&str],
) -> Result<Child> {
    let floor: PathBuf = file.with_extension("floor");
    let child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["take-ids", "--scheme", scheme, "--seed", "1"])
        .args(["--window-ms", &window_ms.to_string()])
        .arg("--file")
        .arg(file)
        .arg("--floor-file")
        .arg(floor)
        .args(more)
        .env("LOCKKEEPER_LAB_STORES", store)
        .stdin(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// Two processes of 500 each, alone and in batches.
fn grows_strictly(url: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    tokio::runtime::Runtime::new()?.block_on(async {
        lockkeeper::connect(url).await?.ids("lab/ids").sequence().await?.next().await?;
        anyhow::Ok(())
    })?;
    let files = [folder.path().join("one"), folder.path().join("two")];
    let count = COUNT.to_string();
    let mut children = Vec::new();
    for file in &files {
        children.push(process("sequence", url, 1000, file, &["--count", &count])?);
    }
    // Kept open: a process whose input ends is told to stop.
    let inputs: Vec<_> = children.iter_mut().map(|child| child.stdin.take()).collect();
    for child in &mut children {
        ensure!(child.wait()?.success(), "a process failed");
    }
    drop(inputs);
    let mut all = HashSet::new();
    for file in &files {
        let ids = given(file)?;
        ensure!(ids.len() == COUNT, "{} ids", ids.len());
        ensure!(ids.is_sorted_by(|one, two| one < two), "they do not grow");
        all.extend(ids);
    }
    ensure!(all.len() == 2 * COUNT, "only {} different ids", all.len());
    Ok(())
}

/// Two keepers with different layouts on one key.
async fn refused(url: &str) -> Result<()> {
    let keepers = [lockkeeper::connect(url).await?, lockkeeper::connect(url).await?];
    let one = keepers[0].ids("two-layouts").snowflake(Layout::default()).await?;
    let two = keepers[1].ids("two-layouts").snowflake(Layout::javascript()).await;
    let error = two.err().ok_or_else(|| anyhow::anyhow!("the other layout was accepted"))?;
    ensure!(error.kind() == ErrorKind::Config, "{error:?}");
    ensure!(error.to_string().contains("41/10/12"), "{error}");
    let strict = keepers[1].ids("two-layouts").sequence().await;
    ensure!(
        strict.is_err_and(|error| error.kind() == ErrorKind::Config),
        "another kind was accepted"
    );
    one.close().await?;
    Ok(())
}
