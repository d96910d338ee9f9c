//! Finding and reading the file.

use super::{CONFIG_VARIABLE, Config, Said};
use crate::exit::{self, Failure};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// For the whole machine.
const OF_THE_MACHINE: &str = "/etc/lockkeeper/config.toml";
/// More than anybody's configuration: who gives a device by mistake is told so soon.
const LONGEST: u64 = 1 << 20;

/// Reads the file that the option or the variable names, which must be there, or else the first that is.
pub(crate) fn find(option: Option<&Path>) -> Result<Config, Failure> {
    let variable = std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty());
    if let Some(path) = option.map(Path::to_path_buf).or(variable.map(PathBuf::from)) {
        let missing = || Failure::usage(format!("there is no file {}", path.display()));
        return read(&path)?.ok_or_else(missing);
    }
    for path in usual_places() {
        if let Some(config) = read(&path)? {
            return Ok(config);
        }
    }
    Ok(Config::default())
}

fn usual_places() -> Vec<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let of_the_user = folder("XDG_CONFIG_HOME").or(folder("HOME").map(|home| home.join(".config")));
    let of_the_user = of_the_user.map(|folder| folder.join("lockkeeper/config.toml"));
    of_the_user.into_iter().chain([OF_THE_MACHINE.into()]).collect()
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Config>, Failure> {
    let shown = path.display();
    let refused = |error: std::io::Error| {
        let code = match error.kind() {
            ErrorKind::PermissionDenied => exit::DENIED,
            _ => exit::USAGE,
        };
        Failure::new(code, format!("cannot read {shown}: {error}"))
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(refused(error)),
    };
    refuse_if_others_write(&file, path)?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(refused)?;
    let said = parse(&text).map_err(|why| Failure::usage(format!("{shown}: {why}")))?;
    let path = std::path::absolute(path).map_err(refused)?;
    Ok(Some(Config { path: Some(path), said }))
}

/// Without what stands there: a line of the file can contain a password.
fn parse(text: &str) -> Result<Said, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let message = error.message();
        // These name only keys.
        let is_harmless = ["unknown field", "missing field", "duplicate"]
            .iter()
            .any(|it| message.starts_with(it));
        match is_harmless {
            true => format!("line {line}: {message}"),
            false => format!("line {line} is not understood: see `lockkeeper --help` for the file"),
        }
    })
}

/// Whoever may write the file can have us run a program, and use another store.
#[cfg(unix)]
fn refuse_if_others_write(file: &File, path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let shown = path.display();
    let metadata = file.metadata().map_err(|error| {
        Failure::new(exit::DENIED, format!("cannot see who may write {shown}: {error}"))
    })?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{shown} is no file")));
    }
    let ours = nix::unistd::geteuid().as_raw();
    if metadata.uid() != ours && metadata.uid() != 0 {
        return Err(Failure::new(
            exit::DENIED,
            format!("{shown} belongs to another user, who could change it: use a file of your own"),
        ));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(Failure::new(
            exit::DENIED,
            format!("others may write to {shown}, so it is not used: chmod go-w {shown}"),
        ));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_if_others_write(_: &File, _: &Path) -> Result<(), Failure> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_by_its_line_and_without_a_secret() {
        for (text, hint) in [
            ("[stores.a]\nurl = \"redis://:hunter2@h\"\npasword_file = \"x\"", "pasword_file"),
            ("\n[stores.a]\nurl = \"redis://:hunter2@h", "line 3"),
            ("default = \"a\"\nshow_command = \"hunter2\"", "line 2"),
            ("[stores.a]\npassword_file = \"hunter2\"", "url"),
            ("stores = \"redis://:hunter2@h\"", "line 1"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(hint) && !why.contains("hunter2"), "{why}");
        }
        assert!(parse("").is_ok());
    }
}
