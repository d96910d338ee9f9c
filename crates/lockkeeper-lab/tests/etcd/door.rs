//! Getting in where etcd encrypts.

use crate::{LONG, cases};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, Keeper};
use lockkeeper_lab::server::{Certificates, Lab, Server};

cases!(
    a_server_that_encrypts_is_reached,
    a_server_that_cannot_prove_itself_is_refused,
    a_server_that_asks_for_a_certificate_gets_one,
    who_encrypts_and_who_does_not_are_told_apart,
);

/// The keeper of who trusts the server, and shows what `more` says.
async fn trusting(server: &Server, more: &str) -> lockkeeper::Result<Keeper> {
    let Certificates { authority, .. } = Certificates::in_folder(server.folder());
    let url = format!("{}&ca={}{more}", server.url(), authority.display());
    lockkeeper::connect(&url).await
}

async fn a_server_that_encrypts_is_reached(lab: &Lab) -> Result<()> {
    let server = lab.etcd().tls().start()?;
    let (one, two) = (trusting(&server, "").await?, trusting(&server, "").await?);
    for _ in 0..20 {
        let guard = one.lock("n").ttl(LONG).acquire().await?;
        ensure!(two.lock("n").try_acquire().await?.is_none(), "it is not held");
        let lock = two.lock("n").ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire_within(LONG).await });
        guard.release().await?;
        waiter.await??.release().await?;
    }
    Ok(())
}

async fn a_server_that_cannot_prove_itself_is_refused(lab: &Lab) -> Result<()> {
    let (server, other) = (lab.etcd().tls().start()?, lab.etcd().tls().start()?);
    let stranger = Certificates::in_folder(other.folder()).authority;
    let error = lockkeeper::connect(&format!("{}&ca={}", server.url(), stranger.display())).await;
    let error = error.err().context("it was believed")?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains("ca=FILE"), "{error}");
    Ok(())
}

async fn who_encrypts_and_who_does_not_are_told_apart(lab: &Lab) -> Result<()> {
    let (plain, encrypted) = (lab.etcd().start()?, lab.etcd().tls().start()?);
    let authority = Certificates::in_folder(encrypted.folder()).authority;
    for (url, says) in [
        (format!("etcd://{}", encrypted.address()), "add ?tls=true"),
        (format!("{}?tls=true&ca={}", plain.url(), authority.display()), "leave out tls=true"),
    ] {
        let error = lockkeeper::connect(&url).await.err().context("let in")?;
        ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
        ensure!(error.to_string().contains(says), "{error}");
    }
    Ok(())
}

async fn a_server_that_asks_for_a_certificate_gets_one(lab: &Lab) -> Result<()> {
    let server = lab.etcd().client_certificates().start()?;
    let other = lab.etcd().tls().start()?;
    let shown = |server: &Server| {
        let Certificates { client, client_key, .. } = Certificates::in_folder(server.folder());
        format!("&cert={}&key={}", client.display(), client_key.display())
    };
    let keeper = trusting(&server, &shown(&server)).await?;
    keeper.lock("n").ttl(LONG).acquire().await?.release().await?;
    for (what, more) in [("none", String::new()), ("a stranger's", shown(&other))] {
        let error = trusting(&server, &more).await.err().context("let in")?;
        // The end of the connection may be quicker than the word that says why.
        let kinds = [ErrorKind::Denied, ErrorKind::Unavailable];
        ensure!(kinds.contains(&error.kind()), "{what}: {error:?}");
        ensure!(error.to_string().contains("cert=FILE"), "{what}: {error}");
    }
    Ok(())
}
