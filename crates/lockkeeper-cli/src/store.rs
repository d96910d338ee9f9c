//! Opening the store that the arguments name.

use crate::exit::Failure;
use lockkeeper::Keeper;

/// The store when none is named.
pub(crate) const DEFAULT: &str = "sqlite:";

/// Opens the store at `url`.
pub(crate) async fn open(url: &str) -> Result<Keeper, Failure> {
    if url == DEFAULT && cfg!(not(feature = "sqlite")) {
        // Whoever named no store has not heard of this one.
        return Err(Failure::usage(format!(
            "no store is named, and the default one, {DEFAULT}, is not compiled in: name one with \
             --store or in LOCKKEEPER_STORE, or build this program with the feature \"sqlite\" \
             (`lockkeeper recipes` lists the stores)"
        )));
    }
    Ok(lockkeeper::connect(url).await?)
}

#[cfg(all(test, not(feature = "sqlite")))]
mod tests {
    use super::*;
    use crate::exit;

    #[test]
    fn without_its_default_store_the_program_asks_for_one() {
        let runtime = crate::runtime().unwrap();
        let failure = runtime.block_on(open(DEFAULT)).unwrap_err();
        assert_eq!(failure.code, exit::USAGE);
        for part in ["--store", "LOCKKEEPER_STORE", "feature \"sqlite\""] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }
}
