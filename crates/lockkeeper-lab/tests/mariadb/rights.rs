//! Whom a keeper with a standby refuses: users that a server which was made read-only does not stop.

use crate::sql::doors::{refused, says, url};
use crate::{USER, query, replicating};
use anyhow::Result;
use lockkeeper::ErrorKind;
use lockkeeper_lab::cases;
use lockkeeper_lab::server::Lab;

cases!(a_user_that_may_write_to_a_read_only_server_has_no_standby);

async fn a_user_that_may_write_to_a_read_only_server_has_no_standby(lab: &Lab) -> Result<()> {
    let server = replicating(lab)?;
    let with_standby = |user: &str| {
        let standby = url(&server, user, "lockkeeper", "").replace('@', "%40").replace('?', "");
        url(&server, user, "lockkeeper", &format!("standby={standby}"))
    };
    // The lab's own user has every right there is.
    let error = refused(&with_standby("lockkeeper")).await?;
    says(&error, ErrorKind::Denied, &["ALL PRIVILEGES", "read-only", "without"])?;
    for right in ["SUPER", "READ_ONLY ADMIN"] {
        lockkeeper::connect(&with_standby(USER)).await?;
        query(&server, &format!("GRANT PROCESS, {right} ON *.* TO {USER}@'127.0.0.1'"))?;
        says(&refused(&with_standby(USER)).await?, ErrorKind::Denied, &[right])?;
        // Where there is one server, nothing depends on it.
        lockkeeper::connect(&url(&server, USER, "lockkeeper", "")).await?;
        query(&server, &format!("REVOKE {right} ON *.* FROM {USER}@'127.0.0.1'"))?;
    }
    // By a role, too.
    query(&server, "CREATE ROLE operators")?;
    query(&server, "GRANT READ_ONLY ADMIN ON *.* TO operators")?;
    query(&server, &format!("GRANT operators TO {USER}@'127.0.0.1'"))?;
    lockkeeper::connect(&with_standby(USER)).await?;
    query(&server, &format!("SET DEFAULT ROLE operators FOR {USER}@'127.0.0.1'"))?;
    says(&refused(&with_standby(USER)).await?, ErrorKind::Denied, &["READ_ONLY ADMIN"])?;
    query(&server, &format!("SET DEFAULT ROLE NONE FOR {USER}@'127.0.0.1'"))?;
    lockkeeper::connect(&with_standby(USER)).await?;
    // Or as everybody has it.
    query(&server, "GRANT READ_ONLY ADMIN ON *.* TO PUBLIC")?;
    says(&refused(&with_standby(USER)).await?, ErrorKind::Denied, &["READ_ONLY ADMIN"])
}
