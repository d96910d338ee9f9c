//! Acquire and release of a lock that nobody else wants, beside the bare statements.

use crate::bare::{BareMariaDb, BarePostgres};
use crate::figures::compare;
use anyhow::Result;
use lockkeeper::Keeper;
use lockkeeper_lab::server::Server;
use std::pin::Pin;
use std::sync::Arc;

/// How often a lock is taken in a round, by all tasks together.
const CYCLES: u32 = 32;
const TASKS: u32 = 16;
/// How often one is that waits for no disk.
const QUICK: u32 = 100;
const GOAL: f64 = 0.9;

pub(crate) async fn run(kind: &str, server: &Server) -> Result<()> {
    if kind == "postgres" { postgres(server).await } else { mariadb(server).await }
}

async fn postgres(server: &Server) -> Result<()> {
    let bare = Arc::new(BarePostgres::open(server.port()).await?);
    let [table, advisory, for_update] =
        keepers(server, ["table", "advisory", "for-update"]).await?;
    let of = bare.clone();
    let row = move |task| {
        let bare = of.clone();
        async move { bare.row(task).await }
    };
    let pair = (row.clone(), locking(&table));
    compare("postgres table, one task: of bare", 1, CYCLES, pair, GOAL).await?;
    let pair = (row, locking(&table));
    compare("postgres table, 16 tasks on 16 names: of bare", TASKS, CYCLES / TASKS, pair, GOAL)
        .await?;
    let of = bare.clone();
    let native = move |task| {
        let bare = of.clone();
        async move { bare.advisory(task).await }
    };
    let pair = (native, locking(&advisory));
    compare("postgres advisory: of bare, neither sound nor with a token", 1, QUICK, pair, 0.0)
        .await?;
    let of = bare.clone();
    let counted = move |task| {
        let bare = of.clone();
        async move { bare.advisory_with_token(task).await }
    };
    let pair = (counted, locking(&advisory));
    compare("postgres advisory: of bare with a token, not sound", 1, QUICK, pair, 0.0).await?;
    let of = bare.clone();
    let sound = move |task| {
        let bare = of.clone();
        async move { bare.advisory_sound(task).await }
    };
    let pair = (sound, locking(&advisory));
    compare("postgres advisory: of bare with the same promises", 1, QUICK, pair, GOAL).await?;
    let locked = move |_| {
        let bare = bare.clone();
        async move { bare.for_update().await }
    };
    let pair = (locked, locking(&for_update));
    compare("postgres for-update: of bare, which has no token", 1, QUICK, pair, 0.0).await
}

async fn mariadb(server: &Server) -> Result<()> {
    let bare = Arc::new(BareMariaDb::open(server.port()).await?);
    let [table, get_lock] = keepers(server, ["table", "get-lock"]).await?;
    let of = bare.clone();
    let row = move |task| {
        let bare = of.clone();
        async move { bare.row(task).await }
    };
    let pair = (row.clone(), locking(&table));
    compare("mariadb table, one task: of bare", 1, CYCLES, pair, GOAL).await?;
    let pair = (row, locking(&table));
    compare("mariadb table, 16 tasks on 16 names: of bare", TASKS, CYCLES / TASKS, pair, GOAL)
        .await?;
    let of = bare.clone();
    let native = move |task| {
        let bare = of.clone();
        async move { bare.get_lock(task).await }
    };
    let pair = (native, locking(&get_lock));
    compare("mariadb get-lock: of bare, neither sound nor with a token", 1, QUICK, pair, 0.0)
        .await?;
    let of = bare.clone();
    let counted = move |task| {
        let bare = of.clone();
        async move { bare.get_lock_with_token(task).await }
    };
    let pair = (counted, locking(&get_lock));
    compare("mariadb get-lock: of bare with a token, not sound", 1, QUICK, pair, 0.0).await?;
    let sound = move |task| {
        let bare = bare.clone();
        async move { bare.get_lock_sound(task).await }
    };
    let pair = (sound, locking(&get_lock));
    compare("mariadb get-lock: of bare with the same promises", 1, QUICK, pair, GOAL).await
}

/// A keeper for each recipe.
async fn keepers<const N: usize>(server: &Server, recipes: [&str; N]) -> Result<[Keeper; N]> {
    let mut keepers = Vec::new();
    for recipe in recipes {
        keepers.push(lockkeeper::connect(&format!("{}?recipe={recipe}", server.url())).await?);
    }
    keepers.try_into().map_err(|_| anyhow::anyhow!("as many as there are recipes"))
}

/// Acquire and release, on a name of the task's own.
pub(crate) fn locking(
    keeper: &Keeper,
) -> impl Fn(u32) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Clone + Send + 'static {
    let keeper = keeper.clone();
    move |task| {
        let lock = keeper.lock(format!("bench/{task}"));
        Box::pin(async move { Ok(lock.acquire().await?.release().await?) })
    }
}
