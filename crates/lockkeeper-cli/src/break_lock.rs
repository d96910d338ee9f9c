//! `break`.

use crate::arguments::BreakArguments;
use crate::exit::{self, Failure};
use crate::{json, output};
use lockkeeper::{ErrorKind, FencingToken};

pub(crate) async fn break_lock(asked: &BreakArguments) -> Result<u8, Failure> {
    let keeper = lockkeeper::connect(asked.store.url()).await?;
    let Some(token) = FencingToken::new(asked.token.get()) else {
        return Err(Failure::usage("a token is more than zero"));
    };
    let outcome = keeper.break_hold(&asked.name, token, &asked.reason).await;
    let broken = match outcome {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotHeld => false,
        Err(error) => return Err(error.into()),
    };
    let name = &asked.name;
    if asked.json {
        let (reason, token) = (&asked.reason, token.get());
        output::print(json::line(&json::Break { name, token, reason, broken }))?;
    } else if broken {
        output::print(format!("{name:?} was taken from the holder with token {token}\n"))?;
    } else {
        output::say(&format!(
            "{name:?} is not held with token {token}, so nothing was done: see who holds it now \
             with `lockkeeper show`, and use the token printed there"
        ));
    }
    Ok(if broken { exit::FINE } else { exit::NOTHING })
}
