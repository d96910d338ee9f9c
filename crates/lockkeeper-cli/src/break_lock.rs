//! `break`.

mod ask;

use crate::arguments::BreakArguments;
use crate::exit::{self, Failure};
use crate::{json, output};
use ask::Answer;
use lockkeeper::{ErrorKind, FencingToken, Keeper};

pub(crate) async fn break_lock(asked: &BreakArguments) -> Result<u8, Failure> {
    if asked.token.is_none() {
        ask::refuse_without_person(&asked.name)?;
    }
    let name = &asked.name;
    let keeper = crate::store::open(&asked.store.url()?).await?;
    let (token, reason) = match (asked.token, &asked.reason) {
        (Some(token), Some(reason)) => match FencingToken::new(token.get()) {
            Some(token) => (token, reason.clone()),
            None => return Err(Failure::usage("a token is more than zero")),
        },
        (Some(_), None) => {
            return Err(Failure::usage("say why, by --reason: the holder is told"));
        }
        (None, reason) => match ask::ask(&keeper, name, reason.as_deref(), &asked.manner).await? {
            Answer::Break { token, reason } => (token, reason),
            Answer::Free => {
                output::say(&format!("{name:?} is free"));
                return Ok(exit::NOTHING);
            }
            Answer::No => {
                output::say("nothing was done");
                return Ok(exit::NOTHING);
            }
        },
    };
    let broken = break_hold(&keeper, name, token, &reason).await?;
    if asked.json {
        let (reason, token) = (&reason, token.get());
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

/// Returns whether the lock was held with that token.
async fn break_hold(
    keeper: &Keeper,
    name: &str,
    token: FencingToken,
    reason: &str,
) -> Result<bool, Failure> {
    match keeper.break_hold(name, token, reason).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotHeld => Ok(false),
        Err(error) => Err(error.into()),
    }
}
