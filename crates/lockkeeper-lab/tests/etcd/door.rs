//! Getting in where etcd encrypts.

use crate::cases;
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::{Certificates, Lab};
use lockkeeper_lab::trials::encrypted::{
    asks_for_a_certificate, is_reached, is_refused_by_who_trusts,
};

cases!(
    a_server_that_encrypts_is_reached,
    a_server_that_cannot_prove_itself_is_refused,
    a_server_that_asks_for_a_certificate_gets_one,
    who_encrypts_and_who_does_not_are_told_apart,
);

async fn a_server_that_encrypts_is_reached(lab: &Lab) -> Result<()> {
    is_reached(&lab.etcd().tls().start()?).await
}

async fn a_server_that_cannot_prove_itself_is_refused(lab: &Lab) -> Result<()> {
    let (server, other) = (lab.etcd().tls().start()?, lab.etcd().tls().start()?);
    is_refused_by_who_trusts(&other, &server).await
}

async fn who_encrypts_and_who_does_not_are_told_apart(lab: &Lab) -> Result<()> {
    let (plain, encrypted) = (lab.etcd().start()?, lab.etcd().tls().start()?);
    let authority = Certificates::in_folder(encrypted.folder()).authority;
    for (url, says) in [
        (format!("etcd://{}", encrypted.address()), "add ?tls=true"),
        (format!("{}?tls=true&ca={}", plain.url(), authority.display()), "leave out tls=true"),
    ] {
        // Often: the server ends the connection or resets it, as it happens to come.
        for _ in 0..200 {
            let error = lockkeeper::connect(&url).await.err().context("let in")?;
            ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
            ensure!(error.to_string().contains(says), "{error}");
        }
    }
    Ok(())
}

async fn a_server_that_asks_for_a_certificate_gets_one(lab: &Lab) -> Result<()> {
    let server = lab.etcd().client_certificates().start()?;
    let other = lab.etcd().tls().start()?;
    // The end of the connection may be quicker than the word that says why.
    asks_for_a_certificate(&server, &other, &[ErrorKind::Denied, ErrorKind::Unavailable]).await
}
