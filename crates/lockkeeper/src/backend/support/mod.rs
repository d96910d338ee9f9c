//! What several stores need, written once.
//!
//! | file | what |
//! |---|---|
//! | `alarms` | the alarms of a keeper's claims, by claim id |
//! | `contended` | reading, deciding and writing on condition, beside others who do the same |
//! | `encryption` | TLS for stores whose protocol we speak ourselves |
//! | `life` | whether the runtime that a connection lives on still runs |
//! | `list` | many names at once, shown side by side |
//! | `options` | the lists of option names, and the error for a bad one |
//! | `pace` | how much is asked of a store at once |
//! | `percent` | `%41` for `A` |
//! | `reconnect` | a connection or session shared by many, made anew once for all of them |
//! | `sync` | mutexes that no panic can spoil |
//! | `tls` | the certificates that a URL names |
#![allow(dead_code, reason = "each store uses what it needs of this")]

pub(crate) mod alarms;
pub(crate) mod contended;
#[cfg(any(feature = "memcached", feature = "zookeeper"))]
pub(crate) mod encryption;
pub(crate) mod life;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod pace;
pub(crate) mod percent;
pub(crate) mod reconnect;
pub(crate) mod sync;
#[cfg(feature = "tls")]
pub(crate) mod tls;
