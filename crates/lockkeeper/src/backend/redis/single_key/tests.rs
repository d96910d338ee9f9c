//! What can be said of the recipes without a server. Those with one are in the lab's tests.

use super::open;
use crate::address::Address;
use crate::backend::redis::link::Link;
use crate::backend::redis::options::Options;
use crate::backend::redis::route::Route;
use crate::recipes::recipes;
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, span};

const URL: &str = "redis://127.0.0.1:1";

/// Hears warnings.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// How a recipe shows itself, and what it warns of when it is opened.
fn opened(recipe: &str) -> (String, Vec<String>) {
    let Options { way, door, timeout, .. } = Options::read(&Address::parse(URL).unwrap()).unwrap();
    let link = Link::new(Arc::new(Route::new(way, door, URL.to_owned())), 0, timeout);
    let ear = Ear::default();
    let backend = tracing::subscriber::with_default(ear.clone(), || {
        open(recipe, link, String::new(), URL.to_owned())
    });
    let heard = ear.0.lock().unwrap().clone();
    (backend.to_string(), heard)
}

#[test]
fn the_unsafe_ones_say_so_wherever_they_are_named() {
    for recipe in ["setnx-expire", "getset"] {
        let (shown, heard) = opened(recipe);
        assert_eq!(shown, format!("{URL} (unsafe {recipe})"));
        let [warning] = &heard[..] else { panic!("{heard:?}") };
        assert!(warning.contains(recipe) && warning.contains("UNSAFE"), "{warning}");
        let row = recipes().into_iter().find(|row| row.name == recipe).unwrap();
        assert!(row.is_unsafe() && row.about.starts_with("UNSAFE"), "{}", row.about);
    }
}

#[test]
fn the_sound_one_warns_of_nothing() {
    assert_eq!(opened("set-nx-px"), (format!("{URL} (set-nx-px)"), Vec::new()));
    assert_eq!(recipes().iter().filter(|recipe| recipe.is_unsafe()).count(), 2);
}
