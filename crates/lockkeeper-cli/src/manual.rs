//! Completions and manual pages, generated from the definition of the arguments.

use crate::arguments::Arguments;
use crate::exit::{self, Failure};
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    // Into memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "lockkeeper", &mut script);
    output::print(script)?;
    Ok(exit::FINE)
}

pub(crate) fn man(verb: Option<&str>) -> Result<u8, Failure> {
    let mut command = Arguments::command();
    command.build();
    if let Some(verb) = verb {
        let Some(found) = command.find_subcommand(verb) else {
            let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
            let known = names.join(", ");
            return Err(Failure::usage(format!("there is no {verb:?}: there are {known}")));
        };
        command = found.clone();
    }
    output::print(page(command)?)?;
    Ok(exit::FINE)
}

/// Writes the page of the program and of each of its verbs, also of those behind a verb.
pub(crate) fn write_all(dir: &Path) -> Result<u8, Failure> {
    let mut command = Arguments::command();
    command.build();
    let refused = |path: &Path, error: std::io::Error| {
        Failure::new(exit::NO_OUTPUT, format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(dir).map_err(|error| refused(dir, error))?;
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|it| it.get_name() != "help").cloned());
        let name = command.get_display_name().unwrap_or(command.get_name());
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, page(command)?).map_err(|error| refused(&path, error))?;
    }
    Ok(exit::FINE)
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .source(concat!("lockkeeper ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(|error| Failure::new(exit::NOTHING, error.to_string()))?;
    Ok(page)
}
