//! The judge is judged: broken histories must be found out, and sound ones let pass.

mod brute;
mod cores;
mod counting;
mod ids;
pub(crate) mod writing;

mod seeded;
mod stalls;
