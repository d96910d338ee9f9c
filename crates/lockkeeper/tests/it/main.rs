//! What the library promises through its public face, beyond what the contract suite asks of
//! every store.

mod connect;
mod endings;
mod guards;
mod runtimes;
mod slow;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite_versions;
mod threads;
