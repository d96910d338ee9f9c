//! What can be said of the recipes without a server. Those with one are in the lab's tests.

use super::SingleKeys;
use crate::address::Address;
use crate::backend::Background;
use crate::backend::redis::client::{Client, Connector};
use crate::backend::redis::{RedisOptions, single};
use crate::recipes::recipes;
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, span};

/// Nobody is there: nothing here connects.
const URL: &str = "redis://127.0.0.1:1";

/// Collects warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Warnings {
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
    let url = format!("{URL}?recipe={recipe}");
    let options = RedisOptions::read(&Address::parse(&url).unwrap()).unwrap();
    let connect = options.connect_options(&Background::new());
    let connector = Connector::new(options.topology.clone(), connect, options.shown());
    let (client, url) = (Client::new(connector, 0), options.shown());
    let warnings = Warnings::default();
    let backend = tracing::subscriber::with_default(warnings.clone(), || {
        single(options.recipe, SingleKeys { client, prefix: String::new(), url })
    });
    let heard = warnings.0.lock().unwrap().clone();
    (backend.to_string(), heard)
}

/// A user that copies a URL must not find out by losing data.
#[test]
fn the_unsafe_ones_say_so_wherever_they_are_named() {
    for recipe in ["setnx-expire", "getset"] {
        let (shown, heard) = opened(recipe);
        assert_eq!(shown, format!("{URL} (unsafe {recipe})"));
        let [warning] = &heard[..] else { panic!("{heard:?}") };
        assert!(warning.contains(recipe) && warning.contains("UNSAFE"), "{warning}");
        let row = recipes().iter().find(|row| row.name == recipe).unwrap();
        assert!(row.is_unsafe() && row.about.starts_with("UNSAFE"), "{}", row.about);
    }
}

#[test]
fn the_sound_one_warns_of_nothing() {
    assert_eq!(opened("set-nx-px"), (format!("{URL} (set-nx-px)"), Vec::new()));
    assert_eq!(recipes().iter().filter(|recipe| recipe.is_unsafe()).count(), 2);
}
