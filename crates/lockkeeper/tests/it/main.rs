//! What the library promises through its public face, beyond what the contract suite asks of
//! every store.

mod connect;
#[cfg(feature = "sqlite")]
mod sqlite;
