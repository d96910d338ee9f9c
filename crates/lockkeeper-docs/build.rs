//! Makes a test of every block of Rust in the pages for users.

// The library's own files, of which a build script needs only a part.
#[allow(dead_code, unreachable_pub)]
#[path = "src/markdown.rs"]
mod markdown;
#[allow(dead_code, unreachable_pub)]
#[path = "src/pages.rs"]
mod pages;

use std::fmt::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = pages::root();
    for place in ["README.md", "README.zh-CN.md", "SECURITY.md", "docs"] {
        // What is missing would be built anew each time.
        if root.join(place).exists() {
            println!("cargo::rerun-if-changed={}", root.join(place).display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut source = String::new();
    for page in pages::pages()? {
        if page.is_for_users() && !page.is_in_rustdoc() {
            // A page that cannot be read is told by the test of all pages, with its name.
            let blocks = markdown::blocks(&page.text).unwrap_or_default();
            for block in blocks.iter().filter(|block| block.language == "rust") {
                add(&mut source, &page.path, block)?;
            }
        }
    }
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("blocks.rs"), source)?;
    Ok(())
}

fn add(source: &mut String, page: &str, block: &markdown::Block) -> std::fmt::Result {
    let name: String =
        page.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '_' }).collect();
    let (name, line) = (name.to_lowercase(), block.line);
    let code = block.text.replace("\"sqlite:\"", "&given::embedded()");
    writeln!(source, "// {page}:{line}\nmod {name}_line_{line} {{")?;
    writeln!(source, "#[allow(unused_imports)] use crate::given;")?;
    let is_program = code.contains("fn main(");
    if is_program || code.contains("test]") || code.contains("::test(") {
        let run = match is_program && !block.is("no_run") {
            true => {
                "#[test] fn program() { let end = format!(\"{:?}\", main()); assert!(!end.starts_with(\"Err\"), \"{end}\"); }\n"
            }
            false => "",
        };
        writeln!(source, "{code}{run}}}\n")
    } else {
        let attribute = if block.is("no_run") { "#[allow(dead_code)]" } else { "#[tokio::test]" };
        writeln!(
            source,
            "#[allow(unused_imports)] use crate::given::*;\n{attribute}\n\
             async fn block() -> Result<(), Box<dyn std::error::Error>> {{\n\
             let keeper = lockkeeper::connect(\"memory:\").await?;\n\
             let (db, order, sql) = (given::Database, 42_u64, given::sql()?);\n\
             let guard = keeper.lock(\"given\").acquire().await?;\n\
             {code}\nOk(())\n}}\n}}\n"
        )
    }
}
