//! What `recipe=reentrant` keeps in Redis, byte by byte, and what it does when asked twice.

mod doubt;
mod layout;
mod stage;
mod waiting;
