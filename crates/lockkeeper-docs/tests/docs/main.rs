//! The pages of this repository: their links lead somewhere, and their Rust compiles and runs.
//! Their commands are run by the tests of the command line, which have the program.

mod given;
mod in_step;
mod links;
mod monitoring;
mod shape;

/// Every block of Rust, made by the build script.
#[allow(unused, unused_qualifications, missing_docs, clippy::all, clippy::future_not_send)]
mod rust {
    include!(concat!(env!("OUT_DIR"), "/blocks.rs"));
}
