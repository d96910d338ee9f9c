//! Models of lockkeeper's protocols, in `tests/`: every order of events is visited, as far as a few
//! nodes, clients and steps go. They are tests and nothing else; the crate is apart because it is
//! compiled with optimization also for tests, which makes half a minute of a quarter of an hour.
