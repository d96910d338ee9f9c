//! Connecting: to what is no memcached, to one that cannot keep locks, with a login, with TLS.

use crate::{LONG, by_hand, cases, keeper};
use anyhow::{Context, Result, ensure};
use lockkeeper::{Error, ErrorKind};
use lockkeeper_lab::server::{Kind, Lab};
use lockkeeper_lab::trials::encrypted;
use std::iter;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

cases!(
    what_is_no_memcached_is_told,
    a_port_where_nobody_listens_or_answers_is_told,
    a_memcached_without_meta_commands_is_told,
    a_memcached_without_cas_is_told,
    a_claim_that_is_too_large_is_told,
    who_may_not_list_is_told_and_can_still_show,
    a_user_and_a_password_open_the_door,
    a_login_that_nobody_asks_for_is_told,
    it_can_be_encrypted,
    it_is_refused_by_who_trusts_another,
    it_can_ask_for_certificates,
);

async fn refusal(url: &str) -> Result<Error> {
    lockkeeper::connect(url).await.err().with_context(|| format!("{url} was opened"))
}

/// A program that answers every line that it reads with the next of these.
async fn somebody(answers: &'static [&'static str]) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut inbox = [0; 4096];
                if stream.read(&mut inbox).await.is_ok_and(|read| read > 0) {
                    for answer in answers {
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                }
                // Stays until the other side goes.
                while stream.read(&mut inbox).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    Ok(address)
}

async fn what_is_no_memcached_is_told(lab: &Lab) -> Result<()> {
    let http = somebody(&["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"]).await?;
    let mail = somebody(&["220 mail.example.com ESMTP\r\n"]).await?;
    let mut addresses = vec![http.to_string(), mail.to_string()];
    let mut servers = Vec::new();
    for kind in [Kind::Redis, Kind::Etcd, Kind::ZooKeeper, Kind::Postgres] {
        if kind.available().is_ok() {
            let server = lab.start(kind)?;
            addresses.push(server.address());
            servers.push(server);
        }
    }
    for address in addresses {
        let error = refusal(&format!("memcached://{address}")).await?;
        ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
        ensure!(error.to_string().contains(&address), "{error}");
        ensure!(!error.to_string().contains(['\r', '\n', '\0']), "{error}");
    }
    let error = refusal(&format!("memcached://{http}")).await?;
    ensure!(error.to_string().contains("is no memcached"), "{error}");
    ensure!(!error.is_retryable(), "it is said to help to wait");
    Ok(())
}

async fn a_port_where_nobody_listens_or_answers_is_told(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    server.kill()?;
    let error = refusal(&server.url()).await?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.is_retryable(), "{error:?}");
    let silent = somebody(&[]).await?;
    let begun = Instant::now();
    let error = refusal(&format!("memcached://{silent}?connect_timeout=300ms")).await?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(begun.elapsed().as_millis() >= 300, "it gave up early");
    Ok(())
}

/// Speaks as memcached 1.4 does: there is none to be had for this system any more.
async fn a_memcached_without_meta_commands_is_told(_: &Lab) -> Result<()> {
    const SETTINGS: &str = "STAT cas_enabled yes\r\nEND\r\n";
    let old = somebody(&[SETTINGS, "ERROR\r\n", "VERSION 1.4.39\r\n", "END\r\n"]).await?;
    let error = refusal(&format!("memcached://{old}")).await?;
    ensure!(error.kind() == ErrorKind::Config, "{error:?}");
    ensure!(error.to_string().contains("1.6.13"), "{error}");
    let newer = somebody(&[SETTINGS, "MN\r\n", "VERSION 1.6.12\r\n", "END\r\n"]).await?;
    let error = refusal(&format!("memcached://{newer}")).await?;
    ensure!(error.kind() == ErrorKind::Config, "{error:?}");
    ensure!(error.to_string().contains("1.6.12"), "{error}");
    Ok(())
}

async fn a_memcached_without_cas_is_told(lab: &Lab) -> Result<()> {
    let server = lab.memcached().options(&["-C"]).start()?;
    let error = refusal(&server.url()).await?;
    ensure!(error.kind() == ErrorKind::Config && error.to_string().contains("-C"), "{error:?}");
    Ok(())
}

async fn a_claim_that_is_too_large_is_told(lab: &Lab) -> Result<()> {
    let server = lab.memcached().options(&["-I", "1k", "-o", "slab_chunk_max=1"]).start()?;
    let keeper = keeper(&server).await?;
    for _ in 0..3 {
        let error = keeper.lock("n").ttl(LONG).note(&"n".repeat(1000)).try_acquire().await;
        let error = error.err().context("it was stored")?;
        ensure!(error.kind() == ErrorKind::Store && error.to_string().contains("-I"), "{error:?}");
        // The connection is still in step. (Nothing small is stored here: memcached 1.6.18 itself
        // ends when it stores anything with so small an -I.)
        ensure!(keeper.show("n").await?.holders.is_empty(), "something was stored");
    }
    Ok(())
}

async fn who_may_not_list_is_told_and_can_still_show(lab: &Lab) -> Result<()> {
    const UNABLE: [&[&str]; 2] = [&["-X"], &["-o", "no_lru_crawler"]];
    for options in UNABLE {
        let server = lab.memcached().options(options).start()?;
        let keeper = keeper(&server).await?;
        let guard = keeper.lock("n").ttl(LONG).acquire().await?;
        let error = keeper.list("").await.err().context("listed")?;
        ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
        ensure!(error.to_string().contains("-X"), "{error}");
        ensure!(keeper.show("n").await?.holders.len() == 1, "it is not shown");
        guard.release().await?;
    }
    Ok(())
}

async fn a_user_and_a_password_open_the_door(lab: &Lab) -> Result<()> {
    let server = lab.memcached().login("locker", "hunter2").start()?;
    let keeper = keeper(&server).await?;
    keeper.lock("n").ttl(LONG).acquire().await?.release().await?;
    ensure!(!format!("{keeper:?}").contains("hunter2"), "the password is told");
    let at = server.address();
    for who in ["locker:hunter3@", "nobody:hunter2@", ""] {
        let error = refusal(&format!("memcached://{who}{at}")).await?;
        ensure!(error.kind() == ErrorKind::Denied, "{who}: {error:?}");
        ensure!(!format!("{error:?}").contains("hunter"), "the password is told");
    }
    Ok(())
}

/// It would be sent to any program that listens there, for nothing.
async fn a_login_that_nobody_asks_for_is_told(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let error = refusal(&format!("memcached://locker:hunter2@{}", server.address())).await?;
    ensure!(error.kind() == ErrorKind::Config && error.to_string().contains("-Y"), "{error:?}");
    let left = by_hand(&server, "mg auth v")?;
    ensure!(left.starts_with("EN"), "the password was stored: {left:?}");
    Ok(())
}

async fn it_can_be_encrypted(lab: &Lab) -> Result<()> {
    encrypted::is_reached(&lab.memcached().tls().start()?).await
}

async fn it_is_refused_by_who_trusts_another(lab: &Lab) -> Result<()> {
    let (server, other) = (lab.memcached().tls().start()?, lab.memcached().tls().start()?);
    encrypted::is_refused_by_who_trusts(&other, &server).await?;
    // And one that does not encrypt is no memcached to one that expects it, and the reverse.
    let plain = lab.memcached().start()?;
    let ca = lockkeeper_lab::server::Certificates::in_folder(server.folder()).authority;
    let expects = format!("{}?tls=true&ca={}", plain.url(), ca.display());
    let expects_not = format!("memcached://{}", server.address());
    // Often: the server ends the connection or resets it, as it happens to come.
    for url in iter::repeat_n([expects, expects_not], 100).flatten() {
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
        ensure!(error.to_string().contains("TLS"), "{error}");
    }
    Ok(())
}

async fn it_can_ask_for_certificates(lab: &Lab) -> Result<()> {
    let (server, other) = (
        lab.memcached().client_certificates().start()?,
        lab.memcached().client_certificates().start()?,
    );
    encrypted::asks_for_a_certificate(&server, &other, &[ErrorKind::Unavailable]).await
}
