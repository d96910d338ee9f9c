//! Tests of the judge: it must find broken histories, and pass sound ones.

mod brute;
mod cores;
mod counting;
mod ids;
pub(crate) mod writing;

mod seeded;
mod stalls;
