//! Completions and manual pages, generated from the definition of the arguments.

use crate::arguments::Arguments;
use crate::exit::{self, Failure};
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;

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
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .source(concat!("lockkeeper ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(|error| Failure::new(exit::NOTHING, error.to_string()))?;
    output::print(page)?;
    Ok(exit::FINE)
}
