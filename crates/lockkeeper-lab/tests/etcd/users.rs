//! Users, and what they may.

use crate::{LONG, cases, etcdctl};
use anyhow::{Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::Lab;

cases!(a_user_and_a_password_open_the_door);

async fn a_user_and_a_password_open_the_door(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "add", "locker:hunter2"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "--prefix=true", "readwrite", "mine/"],
        &["user", "grant-role", "locker", "locks"],
        &["auth", "enable"],
    ] {
        etcdctl(&server, words)?;
    }
    let at = server.address();
    let keeper = lockkeeper::connect(&format!("etcd://locker:hunter2@{at}/mine")).await?;
    let guard = keeper.lock("a").ttl(LONG).acquire().await?;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.release().await?;
    for url in
        [format!("etcd://locker:wrong@{at}/mine"), format!("etcd://locker:hunter2@{at}/theirs")]
    {
        let error = lockkeeper::connect(&url).await.expect_err("the door was open");
        ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
        ensure!(!format!("{error:?}").contains("hunter2"), "the password is told");
    }
    let error = lockkeeper::connect(&format!("etcd://{at}/mine")).await.expect_err("no user");
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    Ok(())
}
