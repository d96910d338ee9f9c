//! What is installed, and where.

use crate::said;
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Where each shell looks for the completions of packages.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/lockkeeper"),
    ("fish", "usr/share/fish/vendor_completions.d/lockkeeper.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_lockkeeper"),
];

const DOCUMENTATION: &str = "usr/share/doc/lockkeeper";

/// Puts everything but the control files on the stage.
pub(crate) fn put(stage: &Stage, binary: &Path, repository: &Path) -> Result<()> {
    let bytes = std::fs::read(binary);
    let bytes = bytes.with_context(|| format!("cannot read {}", binary.display()))?;
    stage.put_program("usr/bin/lockkeeper", bytes)?;
    stage.put("usr/lib/sysusers.d/lockkeeper.conf", include_str!("../debian/sysusers.conf"))?;
    stage.put("usr/lib/tmpfiles.d/lockkeeper.conf", include_str!("../debian/tmpfiles.conf"))?;
    for (shell, path) in COMPLETIONS {
        stage.put(path, said(Command::new(binary).args(["completions", shell]))?)?;
    }
    manual(stage, binary)?;
    documentation(stage, repository)
}

/// The page of the command, and one for each verb that this page names.
fn manual(stage: &Stage, binary: &Path) -> Result<()> {
    let page = |verb: Option<&str>| said(Command::new(binary).arg("man").args(verb));
    let first = page(None)?;
    let verbs = verbs(&first);
    ensure!(verbs.contains(&"run"), "the manual page names no verbs: {verbs:?}");
    for verb in verbs {
        let path = format!("usr/share/man/man1/lockkeeper-{verb}.1");
        stage.put_compressed(&path, page(Some(verb))?)?;
    }
    stage.put_compressed("usr/share/man/man1/lockkeeper.1", first)
}

/// The verbs whose pages a page refers to: `lockkeeper\-run(1)`.
fn verbs(page: &str) -> Vec<&str> {
    let named = page.split("lockkeeper\\-").skip(1).filter_map(|rest| rest.split_once("(1)"));
    let mut verbs: Vec<_> = named
        .map(|(verb, _)| verb)
        .filter(|verb| verb.bytes().all(|byte| byte.is_ascii_lowercase()))
        .collect();
    verbs.sort_unstable();
    verbs.dedup();
    verbs
}

/// The licences, what changed, and the pages of the repository that users read.
fn documentation(stage: &Stage, repository: &Path) -> Result<()> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let mit = read(&repository.join("LICENSE-MIT"))?;
    let copyright = include_str!("../debian/copyright").replace("@MIT@", &indented(&mit));
    stage.put(&format!("{DOCUMENTATION}/copyright"), copyright)?;
    let changes = read(&repository.join("CHANGELOG.md"))?;
    stage.put_compressed(&format!("{DOCUMENTATION}/changelog"), changes)?;
    for folder in ["", "backends"] {
        for entry in std::fs::read_dir(repository.join("docs").join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.file_name().and_then(|name| name.to_str());
                let name = name.context("a page has a strange name")?;
                let within = Path::new(DOCUMENTATION).join(folder).join(name);
                stage.put(within.to_str().context("a strange path")?, read(&path)?)?;
            }
        }
    }
    Ok(())
}

/// As a paragraph of a control file: every line behind a space, a dot for an empty one.
fn indented(text: &str) -> String {
    let lines = text.trim_end().lines().map(|line| match line.trim_end() {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    });
    lines.collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verbs_of_a_page_are_those_that_it_refers_to() {
        let page = "lockkeeper \\- runs\n.TP\nlockkeeper\\-run(1)\nRun\n.TP\nlockkeeper\\-ls(1)\n.TP\nlockkeeper\\-run(1)";
        assert_eq!(verbs(page), ["ls", "run"]);
    }

    #[test]
    fn a_text_is_a_paragraph() {
        assert_eq!(indented("one\n\ntwo\n"), " one\n .\n two");
    }
}
