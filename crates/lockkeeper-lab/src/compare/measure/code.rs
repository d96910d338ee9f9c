//! How much there is to read before one understands a recipe: its lines of code.

use super::super::cell::Cell;
use super::Bench;
use anyhow::{Context, Result, ensure};
use lockkeeper::Recipe;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the stores are, seen from this crate.
const BACKENDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lockkeeper/src/backend");

/// One row's cells.
pub(super) fn measure(bench: &mut Bench<'_>) {
    let counted = match bench.contender.recipe() {
        Some(recipe) => lines(recipe),
        None => {
            for key in ["lines", "own-lines"] {
                bench.put(
                    key,
                    Cell::Unknown("the code of other libraries is not counted".to_owned()),
                );
            }
            return;
        }
    };
    let (own, all) = match counted {
        Ok((own, shared)) => (Cell::Figure(own.into()), Cell::Figure((own + shared).into())),
        Err(error) => (Cell::unknown(&error), Cell::unknown(&error)),
    };
    bench.put("own-lines", own);
    bench.put("lines", all);
}

/// The files and folders of a store, below [`BACKENDS`].
fn places(scheme: &str) -> Vec<String> {
    match scheme {
        "memory" => vec!["memory.rs".to_owned(), "queue.rs".to_owned()],
        "postgres" | "mariadb" => vec!["sql".to_owned()],
        "redlock" => vec!["quorum".to_owned(), "redis".to_owned()],
        scheme => vec![scheme.to_owned()],
    }
}

/// What the folders and files of a recipe are called.
fn stem(recipe: &Recipe) -> String {
    // The quorum is a folder beside the stores; a Redis server is a node of it in `redlock`.
    let name = if recipe.scheme == "redlock" { "redlock" } else { recipe.name };
    name.replace('-', "_")
}

/// Lines of the recipe's own, and those that it shares.
fn lines(recipe: &Recipe) -> Result<(u32, u32)> {
    let own_places = places(recipe.scheme);
    let others: Vec<String> = lockkeeper::recipes()
        .iter()
        .filter(|it| places(it.scheme).iter().any(|place| own_places.contains(place)))
        .map(stem)
        .filter(|other| *other != stem(recipe))
        .collect();
    let (mut own, mut shared) = (0, 0);
    for place in &own_places {
        let mut files = Vec::new();
        collect(&Path::new(BACKENDS).join(place), &mut files)?;
        for file in files {
            let parts: Vec<String> = file
                .strip_prefix(BACKENDS)?
                .with_extension("")
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            let has = |word: &str| parts.iter().any(|part| part == word);
            let another = others.iter().any(|other| has(other))
                || (recipe.scheme == "postgres" && has("mysql"))
                || (recipe.scheme == "mariadb" && has("postgres"))
                || (recipe.scheme != "etcd" && has("session") && !recipe.capability.session);
            if another || has("tests") {
                continue;
            }
            let count = code_lines(&fs::read_to_string(&file)?);
            if has(&stem(recipe)) || has("quorum") || recipe.scheme == "memory" {
                own += count;
            } else {
                shared += count;
            }
        }
    }
    ensure!(own > 0, "no file or folder is called {}", stem(recipe));
    Ok((own, shared))
}

fn collect(place: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if place.is_file() {
        let counts = place.extension().is_some_and(|it| it == "rs" || it == "lua" || it == "sql");
        files.extend(counts.then(|| place.to_owned()));
        return Ok(());
    }
    let entries = fs::read_dir(place).with_context(|| format!("no {}", place.display()))?;
    for entry in entries {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

/// Without blank lines, comments, and the tests at the end.
fn code_lines(text: &str) -> u32 {
    let code = text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]");
    let counts =
        |line: &&str| !line.is_empty() && !line.starts_with("//") && !line.starts_with("--");
    u32::try_from(code.filter(counts).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_counts() {
        let text =
            "//! Page.\n\nuse a;\n// why\nfn b() {}\n-- in lua\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(code_lines(text), 2);
    }

    #[test]
    fn every_sound_recipe_has_lines_of_its_own() {
        for recipe in lockkeeper::recipes().iter().filter(|recipe| !recipe.is_unsafe()) {
            let (own, _) = lines(recipe).expect(recipe.name);
            assert!(own > 0, "{} {}: {own}", recipe.scheme, recipe.name);
        }
    }
}
