//! Getting in: credentials and TLS.

use crate::{LONG, cases, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::encrypted::{
    asks_for_a_certificate, is_reached, is_refused_by_who_trusts,
};

cases![
    locks_made_with_credentials_are_closed_to_others,
    a_server_that_encrypts_is_reached,
    a_server_that_cannot_prove_itself_is_refused,
    a_server_that_asks_for_a_certificate_gets_one,
    nobody_there_is_said_so,
];

async fn locks_made_with_credentials_are_closed_to_others(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let address = server.address();
    let with = |who: &str| format!("zookeeper://{who}@{address}/closed");
    let one = keeper(&with("me:secret"), "session=10s").await?;
    let guard = one.lock("n").ttl(LONG).acquire().await?;
    let same = keeper(&with("me:secret"), "session=10s").await?;
    ensure!(same.lock("n").try_acquire().await?.is_none(), "it is not held");
    for (url, options) in [
        (format!("zookeeper://{address}/closed"), "session=10s"),
        (with("me:wrong"), "session=10s"),
    ] {
        let other = keeper(&url, options).await?;
        for outcome in [
            other.lock("n").try_acquire().await.map(drop),
            other.lock("n").acquire().await.map(drop),
            other.lock("another").acquire().await.map(drop),
        ] {
            let error = outcome.err().context("a stranger was let in")?;
            ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
            ensure!(!format!("{error:?}").contains("wrong"), "it tells the password");
        }
    }
    guard.release().await?;
    Ok(())
}

async fn a_server_that_encrypts_is_reached(lab: &Lab) -> Result<()> {
    is_reached(&lab.zookeeper().tls().start()?).await
}

async fn a_server_that_cannot_prove_itself_is_refused(lab: &Lab) -> Result<()> {
    let (server, other) = (lab.zookeeper().tls().start()?, lab.zookeeper().tls().start()?);
    is_refused_by_who_trusts(&other, &server).await?;
    // Nor does who would not encrypt learn anything.
    let plain = lockkeeper::connect(&format!("zookeeper://{}", server.address())).await;
    ensure!(plain.is_err_and(|error| error.kind() == ErrorKind::Unavailable), "a plain greeting");
    Ok(())
}

async fn a_server_that_asks_for_a_certificate_gets_one(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().client_certificates().start()?;
    let other = lab.zookeeper().tls().start()?;
    asks_for_a_certificate(&server, &other, &[ErrorKind::Denied]).await
}

async fn nobody_there_is_said_so(lab: &Lab) -> Result<()> {
    let server = lab.zookeeper().start()?;
    let url = server.url();
    server.kill()?;
    let outcome = lockkeeper::connect(&format!("{url}?connect_timeout=500ms")).await;
    let error = outcome.err().context("someone answered")?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    Ok(())
}
