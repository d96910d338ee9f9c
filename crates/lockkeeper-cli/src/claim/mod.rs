//! Locks, asked for on the command line: what `run` and `lock` share.

pub(crate) mod held;
pub(crate) mod names;
mod obstacle;
pub(crate) mod queue;
pub(crate) mod terms;
mod waiting;

use crate::exit::Failure;
use lockkeeper::Keeper;
use lockkeeper::backend::Reach;
use std::time::Duration;

/// How long we wait at the end for a withdrawal or a release that was not answered.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(2);

/// Connects to a store that other processes can reach, too.
pub(crate) async fn connect(url: &str) -> Result<Keeper, Failure> {
    let keeper = crate::store::open(url).await?;
    if keeper.capability().reach == Reach::Process {
        return Err(Failure::usage(format!(
            "a lock in {keeper} excludes no other command: use a store that reaches further, such \
             as sqlite:"
        )));
    }
    Ok(keeper)
}
