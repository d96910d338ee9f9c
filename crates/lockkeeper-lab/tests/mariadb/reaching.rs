//! The ways to a server: TLS, certificates, a Unix socket, a pool of the caller's.

use crate::sql::{LONG, PATIENT};
use anyhow::{Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper::backend::sql::MysqlOptions;
use lockkeeper_lab::cases;
use lockkeeper_lab::server::{Certificates, Lab};
use lockkeeper_lab::trials::encrypted;
use mysql_async::{OptsBuilder, Pool};

cases!(
    tls_is_spoken,
    a_server_of_another_authority_is_refused,
    certificates_are_shown_to_a_server_that_asks,
    a_unix_socket_is_a_way_in,
    a_pool_of_the_callers_is_used,
);

async fn tls_is_spoken(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().tls().start()?;
    encrypted::is_reached(&server).await?;
    for recipe in ["get-lock", "for-update", "optimistic"] {
        let ca = Certificates::in_folder(server.folder()).authority;
        let url = format!("{}&ca={}&recipe={recipe}", server.url(), ca.display());
        let keeper = lockkeeper::connect(&url).await?;
        keeper.lock("encrypted").ttl(LONG).acquire().await?.release().await?;
        keeper.close(PATIENT).await;
    }
    Ok(())
}

async fn a_server_of_another_authority_is_refused(lab: &Lab) -> Result<()> {
    let (server, other) = (lab.mariadb().tls().start()?, lab.mariadb().tls().start()?);
    encrypted::is_refused_by_who_trusts(&other, &server).await
}

async fn certificates_are_shown_to_a_server_that_asks(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().client_certificates().start()?;
    let other = lab.mariadb().client_certificates().start()?;
    let kinds = [ErrorKind::Denied, ErrorKind::Unavailable];
    encrypted::asks_for_a_certificate(&server, &other, &kinds).await
}

async fn a_unix_socket_is_a_way_in(lab: &Lab) -> Result<()> {
    // Sockets have short paths.
    let folder = tempfile::Builder::new().prefix("lk").tempdir_in("/tmp")?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let path = folder.path().join("socket");
    let path = path.display();
    let server = lab.mariadb().config(&format!("--socket={path}")).start()?;
    crate::query(&server, "CREATE USER here@localhost IDENTIFIED BY 'hunter2'")?;
    crate::query(&server, "GRANT ALL ON lockkeeper.* TO here@localhost")?;
    let url = format!("mariadb://here:hunter2@/lockkeeper?socket={path}");
    let keeper = lockkeeper::connect(&url).await?;
    let guard = keeper.lock("by socket").ttl(LONG).acquire().await?;
    let others = "SELECT count(*) FROM information_schema.processlist \
                  WHERE user = 'here' AND host <> 'localhost'";
    ensure!(crate::query(&server, others)? == ["0"], "it came by TCP");
    guard.release().await?;
    Ok(())
}

/// And nothing of ours stays in its connections.
async fn a_pool_of_the_callers_is_used(lab: &Lab) -> Result<()> {
    let server = lab.mariadb().start()?;
    let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(server.port());
    let pool = Pool::new(opts.user(Some("lockkeeper")).db_name(Some("lockkeeper")));
    let keeper = lockkeeper::connect_with(MysqlOptions::from_pool(pool.clone())).await?;
    let guard = keeper.lock("pooled").ttl(LONG).acquire().await?;
    ensure!(pool.metrics().connection_count.load(std::sync::atomic::Ordering::Relaxed) > 0);
    guard.release().await?;
    ensure!(keeper.close(PATIENT).await, "something was left undone");
    drop(keeper);
    // Waits until every connection is back.
    tokio::time::timeout(PATIENT, pool.disconnect()).await??;
    Ok(())
}
