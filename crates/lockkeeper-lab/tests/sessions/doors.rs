//! Servers on which a lock of a session would be none are refused when the keeper is made.

use anyhow::{Context, Result, ensure};
use lockkeeper::ErrorKind;

/// The error of a keeper that cannot be made.
async fn refusal(url: &str) -> Result<lockkeeper::Error> {
    lockkeeper::connect(url).await.err().with_context(|| format!("{url} was taken"))
}

/// Says what is wrong, and what to do.
fn is_clear(error: &lockkeeper::Error, word: &str) -> Result<()> {
    ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
    let text = error.to_string();
    ensure!(text.contains(word) && text.contains("recipe=table"), "{text}");
    Ok(())
}

pub(crate) mod postgres {
    use super::{is_clear, refusal};
    use anyhow::Result;
    use lockkeeper_lab::cases;
    use lockkeeper_lab::server::Lab;

    cases!(
        advisory_refuses_a_pooler,
        advisory_refuses_a_pooler_that_swallows_settings,
        advisory_refuses_a_standby
    );

    async fn advisory_refuses_a_pooler(lab: &Lab) -> Result<()> {
        let server = lab.postgres().start()?;
        let bouncer = lab.pgbouncer(server.port()).start()?;
        is_clear(&refusal(&format!("{}?recipe=advisory", bouncer.url())).await?, "pooler")
    }

    async fn advisory_refuses_a_pooler_that_swallows_settings(lab: &Lab) -> Result<()> {
        let server = lab.postgres().start()?;
        let quiet = "ignore_startup_parameters = options, extra_float_digits";
        let bouncer = lab.pgbouncer(server.port()).config(quiet).start()?;
        is_clear(&refusal(&format!("{}?recipe=advisory", bouncer.url())).await?, "pooler")
    }

    async fn advisory_refuses_a_standby(lab: &Lab) -> Result<()> {
        let pair = lab.postgres().start_replicated()?;
        is_clear(&refusal(&format!("{}?recipe=advisory", pair.standby.url())).await?, "standby")
    }
}

pub(crate) mod mariadb {
    use super::{is_clear, refusal};
    use anyhow::Result;
    use lockkeeper_lab::cases;
    use lockkeeper_lab::server::Lab;

    cases!(get_lock_refuses_a_server_that_only_reads, get_lock_refuses_a_member_of_galera);

    async fn get_lock_refuses_a_server_that_only_reads(lab: &Lab) -> Result<()> {
        let server = lab.mariadb().read_only().start()?;
        is_clear(&refusal(&format!("{}?recipe=get-lock", server.url())).await?, "read")
    }

    async fn get_lock_refuses_a_member_of_galera(lab: &Lab) -> Result<()> {
        let server = lab.mariadb().galera().start()?;
        is_clear(&refusal(&format!("{}?recipe=get-lock", server.url())).await?, "several")
    }
}
