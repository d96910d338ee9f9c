//! `schema`: the tables and the rights that locks in a database need.

use crate::arguments::SchemaArguments;
use crate::exit::Failure;

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn print(asked: &SchemaArguments) -> Result<u8, Failure> {
    use lockkeeper::backend::sql::{migration_script, schema_script};

    let url = &asked.store.url()?;
    crate::output::print(match asked.from {
        None => schema_script(url)?,
        Some(version) => migration_script(url, version)?,
    })?;
    Ok(crate::exit::FINE)
}

#[cfg(not(any(feature = "mysql", feature = "postgres")))]
pub(crate) fn print(asked: &SchemaArguments) -> Result<u8, Failure> {
    let _ = (asked.store.url()?, asked.from);
    Err(Failure::usage(
        "only databases have tables, and none is compiled in: build this program with the feature \
         \"mysql\" or \"postgres\"",
    ))
}
