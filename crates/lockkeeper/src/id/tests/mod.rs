//! Generators on `memory:`, on a paused clock, with a store that can be broken.

mod generators;
mod leases;
mod model;
mod nodes;
mod outages;
mod losses;
mod store;
