//! The ways to a server: TLS, certificates, a Unix socket, the driver's own configuration.

use crate::sql::{LONG, PATIENT};
use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;
use lockkeeper::backend::sql::PostgresOptions;
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;
use lockkeeper_lab::trials::encrypted;

cases!(
    tls_is_spoken,
    a_server_of_another_authority_is_refused,
    certificates_are_shown_to_a_server_that_asks,
    a_unix_socket_is_a_way_in,
    a_password_is_read_from_the_file_for_it,
    a_configuration_of_the_drivers_is_taken,
    many_come_at_once_to_a_database_without_tables,
);

/// Two that make the same table at once get an error from PostgreSQL, even if they only make it where
/// it is missing.
async fn many_come_at_once_to_a_database_without_tables(lab: &Lab) -> Result<()> {
    for recipe in ["table", "advisory", "for-update", "optimistic"] {
        let server = lab.postgres().start()?;
        let url = format!("{}?recipe={recipe}", server.url());
        let mut keepers = tokio::task::JoinSet::new();
        for number in 0..16 {
            let url = url.clone();
            keepers.spawn(async move {
                let keeper = lockkeeper::connect(&url).await?;
                keeper.lock(format!("a/{number}")).ttl(LONG).acquire().await?.release().await
            });
        }
        while let Some(outcome) = keepers.join_next().await {
            outcome?.with_context(|| recipe)?;
        }
    }
    Ok(())
}

async fn tls_is_spoken(lab: &Lab) -> Result<()> {
    let server = lab.postgres().tls().start()?;
    encrypted::is_reached(&server).await?;
    for recipe in ["advisory", "for-update", "optimistic"] {
        let certificates = lockkeeper_lab::server::Certificates::in_folder(server.folder());
        let ca = certificates.authority.display();
        let url = format!("{}&ca={ca}&recipe={recipe}", server.url());
        let keeper = lockkeeper::connect(&url).await?;
        let guard = keeper.lock("encrypted").ttl(LONG).acquire().await?;
        let plain = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                     WHERE a.application_name = 'lockkeeper' AND NOT s.ssl";
        ensure!(crate::query(&server, plain)? == ["0"], "{recipe} has a plain connection");
        guard.release().await?;
        keeper.close(PATIENT).await;
    }
    Ok(())
}

async fn a_server_of_another_authority_is_refused(lab: &Lab) -> Result<()> {
    let (server, other) = (lab.postgres().tls().start()?, lab.postgres().tls().start()?);
    encrypted::is_refused_by_who_trusts(&other, &server).await
}

async fn certificates_are_shown_to_a_server_that_asks(lab: &Lab) -> Result<()> {
    let server = lab.postgres().client_certificates().start()?;
    let other = lab.postgres().client_certificates().start()?;
    let kinds = [ErrorKind::Denied, ErrorKind::Unavailable];
    encrypted::asks_for_a_certificate(&server, &other, &kinds).await
}

async fn a_unix_socket_is_a_way_in(lab: &Lab) -> Result<()> {
    // Sockets have short paths.
    let folder = tempfile::Builder::new().prefix("lk").tempdir_in("/tmp")?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let path = folder.path().display();
    let server = lab.postgres().config(&format!("unix_socket_directories={path}")).start()?;
    let port = server.port();
    let mut options = PostgresOptions::new(&path.to_string(), port);
    options.config.user("lockkeeper").dbname("lockkeeper");
    let keeper = lockkeeper::connect_with(options).await?;
    let guard = keeper.lock("by socket").ttl(LONG).acquire().await?;
    let local = "SELECT count(*) FROM pg_stat_activity \
                 WHERE application_name = 'lockkeeper' AND client_addr IS NOT NULL";
    ensure!(crate::query(&server, local)? == ["0"], "it came by TCP");
    guard.release().await?;
    Ok(())
}

async fn a_password_is_read_from_the_file_for_it(lab: &Lab) -> Result<()> {
    let server = lab.postgres().start()?;
    crate::ask_for_password(&server, "guarded", "hunter2")?;
    let folder = tempfile::tempdir()?;
    let (file, port) = (folder.path().join("passwords"), server.port());
    let lines = format!("127.0.0.1:{port}:other:*:no\n*:{port}:lockkeeper:guarded:hunter2\n");
    std::fs::write(&file, lines)?;
    let url =
        format!("postgres://guarded@{}/lockkeeper?passfile={}", server.address(), file.display());
    for (rights, let_in) in [(0o600, true), (0o644, false)] {
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(rights))?;
        let opened = lockkeeper::connect(&url).await;
        ensure!(opened.is_ok() == let_in, "with the rights {rights:o}: {:?}", opened.err());
    }
    Ok(())
}

async fn a_configuration_of_the_drivers_is_taken(lab: &Lab) -> Result<()> {
    let server = lab.postgres().start()?;
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.port()).user("lockkeeper").dbname("lockkeeper");
    config.application_name("theirs");
    let keeper = lockkeeper::connect_with(PostgresOptions::from_config(config)).await?;
    let guard = keeper.lock("theirs").ttl(LONG).acquire().await?;
    let ours = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'theirs'";
    ensure!(crate::query(&server, ours)? == ["t"], "their configuration was not used");
    guard.release().await?;
    Ok(())
}
