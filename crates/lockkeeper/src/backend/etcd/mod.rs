//! `etcd://h1:2379,h2:2379/prefix` — etcd, version 3.4 or later.
//!
//! A claim is a key below the lock's name, as in Go's `concurrency` package and `etcdctl lock`:
//! `prefix/name/lease…`, and the key that was created first holds the lock. Programs in Go and
//! in Rust that use one name exclude each other and wait in one queue. What Go does not know, it
//! is safe from: it waits for every claim before its own, also for readers and for permits.
//!
//! All claims of a keeper live on one lease, its session. It is kept alive for as long as
//! anything is held or waited for; when the process dies, its claims go when the session ends.
//! So no claim is valid for longer than the session lasts without an answer from etcd, whatever
//! its own ttl.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `session` | how long others wait after a crash: at least `2s`, whole seconds | `10s` |
//! | `timeout` | how long one member may take to answer | `2s` |
//! | `tls` | `true` to speak TLS | `false` |
//! | `ca` | a file with the certificates to trust | those of the system |
//! | `cert`, `key` | files with a certificate of our own and its key | none |
//!
//! The path is what every key begins with, a slash behind it; `lockkeeper` if there is none. A
//! user that is not root needs to read and write all keys that begin so.
//!
//! A restore from a snapshot takes etcd's revisions back, and the tokens made of them: restore
//! with `--bump-revision` (etcd 3.6), or let the resources forget the tokens they saw.

mod debt;
mod history;
mod key;
mod lease;
mod link;
mod listener;
mod options;
mod place;
mod proto;
mod queue;
mod record;
mod requests;
mod session;
mod together;
mod trouble;
mod view;
mod wait;

use crate::address::Address;
use crate::backend::Backend;
use crate::background::Background;
use crate::error::Result;
use link::Link;
use options::Options;
pub use queue::Etcd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Opens the store that the URL names.
pub(crate) async fn open(address: &Address, background: &Background) -> Result<Arc<dyn Backend>> {
    let options = Options::read(address)?;
    let link = Arc::new(Link::new(options.door, background.clone()));
    Ok(Arc::new(Etcd::open(link, options.prefix, options.session).await?))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks; were one poisoned, its content is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
