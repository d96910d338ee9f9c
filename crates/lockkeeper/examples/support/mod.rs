//! What the examples share: the store to use, and a clock to print.

use std::time::Instant;

/// The URL after `--store`, else the embedded file.
pub(crate) fn store() -> String {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => "sqlite:".to_owned(),
        (Some("--store"), Some(url)) => url,
        _ => {
            eprintln!("usage: [--store URL]");
            std::process::exit(64);
        }
    }
}

/// Prints lines with the time since it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Story(Instant);

impl Story {
    pub(crate) fn begin(title: &str) -> Self {
        println!("{title}\n");
        Self(Instant::now())
    }

    pub(crate) fn tell(self, line: &str) {
        println!("{:6.2} s  {line}", self.0.elapsed().as_secs_f64());
    }
}
