//! Passwords from a file, as PostgreSQL's own programs find them: `~/.pgpass`, or whatever
//! `PGPASSFILE` or the option `passfile` names.
//!
//! A line is `host:port:database:user:password`, where a `*` stands for anything and a backslash
//! takes the meaning from a `:` or another backslash; the first line that fits counts. A file that
//! others may read is not used, so that a mistake in its rights is noticed and not lived with.

use crate::backend::support::options::config;
use crate::error::Result;
use std::path::{Path, PathBuf};

/// Whom a password is looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whom<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The file: the one that is named, else that of the environment, else that of the user's home.
pub(super) fn file(named: Option<&str>) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = named.map(PathBuf::from).or_else(|| variable("PGPASSFILE").map(PathBuf::from));
    named.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pgpass")))
}

/// The password in a file; `None` where the file is missing, or says nothing of them, or is readable
/// to others, which is warned of.
///
/// # Errors
/// When the file has different passwords for several hosts: the driver takes one for all.
pub(super) fn password(path: &Path, all: &[Whom<'_>]) -> Result<Option<String>> {
    let Some(text) = contents(path) else { return Ok(None) };
    let mut found = all.iter().map(|whom| find(&text, whom));
    let first = found.next().flatten();
    if found.any(|other| other != first) {
        let path = path.display();
        return Err(config(format!(
            "{path} has different passwords for the hosts of the URL: name one host"
        )));
    }
    Ok(first)
}

/// What is in the file, if nobody else may read it.
fn contents(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    let path = path.display();
    if !about.is_file() {
        tracing::warn!(%path, "the password file is no file, and is not used");
        return None;
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o077 != 0 {
        tracing::warn!(%path, "others may read the password file, so it is not used: chmod 0600");
        return None;
    }
    std::fs::read_to_string(path.to_string()).ok()
}

/// The password of the first line that fits.
fn find(text: &str, whom: &Whom<'_>) -> Option<String> {
    let port = whom.port.to_string();
    let wanted = [whom.host, &port, whom.database, whom.user];
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|fields| {
        let (password, others) = fields.split_last()?;
        let fits = |(field, wanted): (&Field, &&str)| {
            // A Unix socket is in a folder, which the file may also call `localhost`.
            let socket = wanted.starts_with('/') && field.text == "localhost";
            field.any || field.text == **wanted || socket
        };
        let all = others.len() == wanted.len() && others.iter().zip(&wanted).all(fits);
        (all && !password.text.is_empty()).then(|| password.text.clone())
    })
}

/// A part of a line.
#[derive(Default)]
struct Field {
    text: String,
    /// Whether it is a `*` that stands for anything.
    any: bool,
}

/// The five parts of a line. A `:` in the password need not be marked.
fn fields(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let (mut marked, mut last) = (false, 0);
    for letter in line.chars() {
        match letter {
            '\\' if !marked => {
                marked = true;
                continue;
            }
            ':' if !marked && last < 4 => {
                fields.push(Field::default());
                last += 1;
            }
            '*' if !marked && fields[last].text.is_empty() => {
                fields[last].text.push('*');
                fields[last].any = true;
            }
            letter => {
                fields[last].text.push(letter);
                fields[last].any = false;
            }
        }
        marked = false;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Whom<'_> = Whom { host: "h", port: 5432, database: "app", user: "me" };

    fn found(text: &str) -> Option<String> {
        find(text, &ME)
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let text = "# h:5432:app:me:no\nother:5432:app:me:a\nh:1:app:me:b\nh:5432:x:me:c\n\
                    h:5432:app:you:d\nh:*:*:me:e\nh:5432:app:me:f\n";
        assert_eq!(found(text).as_deref(), Some("e"));
        assert_eq!(found("h:5432:app:me"), None);
        assert_eq!(found("h:5432:app:me:"), None);
        assert_eq!(found("*:*:*:*:all").as_deref(), Some("all"));
        assert_eq!(found(""), None);
    }

    #[test]
    fn a_backslash_takes_the_meaning() {
        assert_eq!(found(r"h:5432:app:me:a\:b\\c").as_deref(), Some(r"a:b\c"));
        assert_eq!(found("h:5432:app:me:a:b").as_deref(), Some("a:b"));
        let odd = Whom { user: "m:e", ..ME };
        assert_eq!(find(r"h:5432:app:m\:e:x", &odd).as_deref(), Some("x"));
        assert_eq!(found(r"\*:5432:app:me:x"), None);
        assert_eq!(found(r"h:5432:app:me:*").as_deref(), Some("*"));
    }

    #[test]
    fn a_socket_is_called_localhost() {
        let socket = Whom { host: "/run/postgresql", ..ME };
        for host in ["localhost", "/run/postgresql", "*"] {
            let text = format!("{host}:5432:app:me:x");
            assert_eq!(find(&text, &socket).as_deref(), Some("x"), "{host}");
        }
        assert_eq!(found("localhost:5432:app:me:x"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        assert_eq!(password(&path, &[ME]).unwrap(), None);
        std::fs::write(&path, "h:5432:app:me:x\nother:*:*:*:y\n").unwrap();
        for (mode, wanted) in [(0o600, Some("x")), (0o640, None), (0o604, None), (0o400, Some("x"))]
        {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(password(&path, &[ME]).unwrap().as_deref(), wanted, "{mode:o}");
        }
        let other = Whom { host: "other", ..ME };
        assert!(password(&path, &[ME, other]).is_err());
        assert_eq!(password(folder.path(), &[ME]).unwrap(), None);
    }
}
