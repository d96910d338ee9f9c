//! Who this process is, for people.

use std::sync::Arc;

/// `user@host pid 4242`: what others see of our claims.
pub(crate) fn identity() -> Arc<str> {
    let clean = |text: String| text.chars().filter(|c| !c.is_control()).take(60).collect();
    let (user, host): (String, String) = (clean(user()), clean(host()));
    format!("{user}@{host} pid {}", std::process::id()).into()
}

#[cfg(unix)]
fn user() -> String {
    let uid = nix::unistd::Uid::effective();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

#[cfg(unix)]
fn host() -> String {
    let name = nix::unistd::gethostname().ok();
    name.map_or_else(|| "localhost".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn user() -> String {
    std::env::var("USERNAME").unwrap_or_else(|_| "unknown".into())
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_names_this_process() {
        let identity = super::identity();
        assert!(identity.ends_with(&format!(" pid {}", std::process::id())), "{identity}");
        assert!(identity.contains('@'));
    }
}
