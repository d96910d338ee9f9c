//! Generators on `memory:`.
