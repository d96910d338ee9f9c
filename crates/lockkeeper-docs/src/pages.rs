//! Which pages there are.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// One Markdown file.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its path from the root of the repository, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Page {
    /// Whether its commands and code are tried: those for users, not those for developers, whose
    /// commands are the tests themselves, nor stories, which the lab writes.
    #[must_use]
    pub fn is_for_users(&self) -> bool {
        let top = ["README.md", "README.zh-CN.md", "SECURITY.md"].contains(&self.path.as_str());
        top || self.path.starts_with("docs/")
    }

    /// Whether it is a part of the library's documentation, where rustdoc tries its code.
    #[must_use]
    pub fn is_in_rustdoc(&self) -> bool {
        self.path.starts_with("docs/backends/")
    }
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Every Markdown file of the repository, ordered by path.
///
/// # Errors
/// When the files cannot be read.
pub fn pages() -> io::Result<Vec<Page>> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            let name = name.to_string_lossy();
            // A link leads to a page that is found anyway; what tests keep is data.
            let is_ours = !["target", "tests", "node_modules"].contains(&&*name);
            if kind.is_dir() && !name.starts_with('.') && is_ours {
                folders.push(entry.path());
            } else if kind.is_file() && name.ends_with(".md") {
                let path = entry.path();
                let text = fs::read_to_string(&path)?;
                let path = path.strip_prefix(&root).unwrap_or(&path);
                found.push(Page { path: path.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
