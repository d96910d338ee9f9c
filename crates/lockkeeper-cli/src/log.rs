//! What is written to stderr besides results: our messages, the library's warnings, and its log.
//!
//! Everything comes by `tracing`, so that one place decides in which form it is printed. Messages of the
//! command ([`output::say`](crate::output::say)) are printed by their caller, at once. What the library
//! tells is printed by a thread of its own: a stderr that is stuck must not keep a lock from being renewed.

use crate::globals::{LogFormat, Manner};
use crate::warnings::{self, Line};
use crate::{output, text};
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::time::Duration;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt;

/// Chooses what is logged.
const FILTER_VARIABLE: &str = "RUST_LOG";
/// How long a stuck stderr can delay the end.
const LAST_WORD: Duration = Duration::from_millis(500);
/// How many lines may wait for a stderr that is stuck; the next ones are dropped.
const MOST_LINES: usize = 10_000;

/// What is to be printed for the library.
pub(crate) struct Log(Lines);

/// From now on, shows what is told in this manner.
///
/// Must be called once, by `main`, when signals are held back: the thread that it starts inherits that.
pub(crate) fn install(manner: &Manner) -> Log {
    let (lines, told) = mpsc::sync_channel(MOST_LINES);
    let lines = Lines(lines);
    let asked_for = std::env::var(FILTER_VARIABLE).ok().filter(|filter| !filter.is_empty());
    let filter = asked_for.map(|directives| EnvFilter::builder().parse(directives)).transpose();
    let (filter, misunderstood) = match filter {
        Ok(filter) => (filter, None),
        Err(error) => (None, Some(error)),
    };
    // Fails only if there is a subscriber already, which only we could have set.
    let _ = Registry::default().with(layers(manner, filter, &lines)).try_init();
    if let Some(error) = misunderstood.filter(|_| !manner.quiet) {
        let error = text::visible(&error.to_string());
        output::say(&format!("warning: {FILTER_VARIABLE} is not understood: {error}"));
    }
    // It ends with the process. If there is no thread, what the library tells is not shown.
    let printer = std::thread::Builder::new().name("log".into());
    let _ = printer.spawn(move || {
        never_stop_for_output();
        told.iter().for_each(print);
    });
    Log(lines)
}

type AnyLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// `filter` is what `RUST_LOG` asks for.
fn layers<S>(manner: &Manner, filter: Option<EnvFilter>, lines: &Lines) -> Vec<AnyLayer<S>>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let json = manner.log_format == LogFormat::Json;
    let shows_warnings = !manner.quiet;
    let said =
        Said { json }.with_filter(filter_fn(|told: &Metadata<'_>| told.target() == output::TARGET));
    let mut layers: Vec<AnyLayer<S>> = vec![said.boxed()];
    let is_ours = filter_fn(|told: &Metadata<'_>| warnings::is_of_lockkeeper(told.target()));
    let format = || fmt::layer().with_writer(lines.clone());
    if shows_warnings {
        let warning = filter_fn(warnings::is_shown);
        layers.push(match json {
            true => format().json().flatten_event(true).with_filter(warning).boxed(),
            false => WarningLines(lines.clone()).with_filter(warning).boxed(),
        });
    }
    if let Some(filter) = filter {
        let told_already =
            filter_fn(move |told: &Metadata<'_>| shows_warnings && warnings::is_shown(told));
        let filter = filter.and(is_ours).and(told_already.not());
        let colorful = manner.is_colorful(io::stderr().is_terminal());
        layers.push(match json {
            true => format().json().flatten_event(true).with_filter(filter).boxed(),
            false => format().with_ansi(colorful).with_filter(filter).boxed(),
        });
    }
    layers
}

impl Log {
    /// Waits until everything so far is printed, but not for a stderr that is stuck.
    pub(crate) fn flush(&self) {
        let (done, flushed) = mpsc::channel();
        if self.0.0.try_send(Told::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(LAST_WORD);
        }
    }
}

/// A run in the background of a terminal must go on although its messages are written there.
fn never_stop_for_output() {
    #[cfg(unix)]
    crate::run::terminal::never_stop_for_output();
}

/// What the printer is told.
enum Told {
    /// With its line break.
    Line(Vec<u8>),
    /// To say that everything before is printed.
    Flush(mpsc::Sender<()>),
}

fn print(told: Told) {
    match told {
        Told::Line(line) => drop(io::stderr().write_all(&line)),
        // The caller of `flush` may have gone on.
        Told::Flush(done) => drop(done.send(())),
    }
}

/// The way to the printer.
#[derive(Clone)]
struct Lines(mpsc::SyncSender<Told>);

impl Write for Lines {
    /// One whole line at a time: the formatter writes so.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(Told::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The library's warnings, as lines that begin as all of ours do.
struct WarningLines(Lines);

impl<S: Subscriber> Layer<S> for WarningLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = output::line(&Line::of(event).finish());
        let _ = self.0.0.try_send(Told::Line(line.into_bytes()));
    }
}

/// What the command says, printed before its caller goes on.
struct Said {
    json: bool,
}

impl<S: Subscriber> Layer<S> for Said {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let message = Line::of(event).message;
        let line = match self.json {
            true => json_line(*event.metadata().level(), &message),
            false => output::line(&message),
        };
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// With the field names of the log.
fn json_line(level: Level, message: &str) -> String {
    let mut timestamp = String::new();
    // To write to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let level = level.as_str();
    let target = output::TARGET;
    let object = serde_json::json!({
        "timestamp": timestamp, "level": level, "message": message, "target": target,
    });
    format!("{object}\n")
}
