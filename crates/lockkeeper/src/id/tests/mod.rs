//! Generators on `memory:`, on a paused clock, with a store that can be broken.

mod generators;
mod leases;
mod losses;
mod model;
mod nodes;
mod outages;
mod store;
