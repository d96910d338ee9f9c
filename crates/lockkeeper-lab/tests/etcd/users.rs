//! Users, and what they may.

use crate::{LONG, cases, etcdctl};
use anyhow::{Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::{Certificates, Lab, Server};

cases!(
    a_user_and_a_password_open_the_door,
    a_user_and_a_password_open_the_door_where_etcd_encrypts,
    a_password_that_takes_long_to_check_is_no_absent_server,
);

async fn a_user_and_a_password_open_the_door(lab: &Lab) -> Result<()> {
    only_those_known(&lab.etcd().start()?, "").await
}

async fn a_user_and_a_password_open_the_door_where_etcd_encrypts(lab: &Lab) -> Result<()> {
    let server = lab.etcd().tls().start()?;
    let authority = Certificates::in_folder(server.folder()).authority;
    only_those_known(&server, &format!("?tls=true&ca={}", authority.display())).await
}

fn with_users(server: &Server) -> Result<()> {
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "add", "locker:hunter2"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "--prefix=true", "readwrite", "mine/"],
        &["user", "grant-role", "locker", "locks"],
        &["auth", "enable"],
    ] {
        etcdctl(server, words)?;
    }
    Ok(())
}

async fn only_those_known(server: &Server, options: &str) -> Result<()> {
    with_users(server)?;
    let at = server.address();
    let keeper = lockkeeper::connect(&format!("etcd://locker:hunter2@{at}/mine{options}")).await?;
    let guard = keeper.lock("a").ttl(LONG).acquire().await?;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    ensure!(guard.is_held(), "{:?}", guard.lost_reason());
    guard.release().await?;
    for who in ["locker:wrong@", "nobody:hunter2@", ""] {
        denied(&format!("etcd://{who}{at}/mine{options}")).await?;
    }
    denied(&format!("etcd://locker:hunter2@{at}/theirs{options}")).await
}

async fn denied(url: &str) -> Result<()> {
    let error = lockkeeper::connect(url).await.expect_err("the door was open");
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(!format!("{error:?}").contains("hunter2"), "the password is told");
    Ok(())
}

/// etcd makes the check slow on purpose, so that many at once take longer than any other request.
async fn a_password_that_takes_long_to_check_is_no_absent_server(lab: &Lab) -> Result<()> {
    let server = lab.etcd().start()?;
    with_users(&server)?;
    let url = format!("etcd://locker:wrong@{}/mine?timeout=400ms", server.address());
    let asking = (0..40).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { denied(&url).await })
    });
    for outcome in asking.collect::<Vec<_>>() {
        outcome.await??;
    }
    Ok(())
}
