//! `recipes`: every kind of store and what it promises.

use crate::arguments::RecipesArguments;
use crate::exit::Failure;
use crate::{exit, json, output, table};
use lockkeeper::Recipe;
use serde::Serialize;

const TITLES: [&str; 13] = [
    "store URL",
    "recipe",
    "reach",
    "shared",
    "permits",
    "fair",
    "fencing",
    "re-entrant",
    "min_hold",
    "wakes",
    "durable",
    "portable",
    "feature",
];

pub(crate) fn print(asked: &RecipesArguments) -> Result<u8, Failure> {
    let recipes = lockkeeper::recipes();
    output::print(if asked.json {
        json::line(&recipes.iter().map(Described::from).collect::<Vec<_>>())
    } else if asked.markdown {
        markdown(recipes)
    } else {
        human(recipes)
    })?;
    Ok(exit::FINE)
}

fn human(recipes: &[Recipe]) -> String {
    let rows: Vec<_> = recipes.iter().map(|recipe| cells(recipe, "yes", "-")).collect();
    let mut text =
        table::lay_out("", TITLES.map(str::to_uppercase).each_ref().map(|t| &**t), &rows);
    for missing in recipes.iter().filter(|recipe| !recipe.compiled) {
        text += &format!("{}: is not compiled into this program\n", missing.scheme);
    }
    text
}

fn markdown(recipes: &[Recipe]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&TITLES.map(str::to_owned));
    text += &format!("|{}\n", "---|".repeat(TITLES.len()));
    for recipe in recipes {
        let mut cells = cells(recipe, "yes", "–");
        cells[0] = format!("`{}`", cells[0]);
        if recipe.feature.is_some() {
            cells[12] = format!("`{}`", cells[12]);
        }
        text += &line(&cells);
    }
    text
}

fn cells(recipe: &Recipe, yes: &str, no: &str) -> [String; 13] {
    let has = |it: bool| if it { yes } else { no }.to_owned();
    let promise = recipe.capability;
    [
        recipe.example.to_owned(),
        format!("{}{}", recipe.name, if recipe.is_unsafe() { " (unsafe)" } else { "" }),
        promise.reach.to_string(),
        has(promise.shared),
        has(promise.permits),
        has(promise.fair),
        has(promise.fencing),
        has(promise.reentrant),
        has(promise.min_hold),
        wakes(recipe).to_owned(),
        has(promise.durable),
        has(promise.portable),
        recipe.feature.unwrap_or(no).to_owned(),
    ]
}

fn wakes(recipe: &Recipe) -> &'static str {
    if recipe.capability.notified { "notified" } else { "polls" }
}

#[derive(Serialize)]
struct Described {
    scheme: &'static str,
    recipe: &'static str,
    example: &'static str,
    about: &'static str,
    reach: String,
    shared: bool,
    permits: bool,
    fair: bool,
    fencing: bool,
    reentrant: bool,
    min_hold: bool,
    wakes: &'static str,
    durable: bool,
    session: bool,
    inspects: bool,
    sequences: bool,
    atomic_multi: bool,
    portable: bool,
    sound: bool,
    feature: Option<&'static str>,
    compiled: bool,
}

impl From<&Recipe> for Described {
    fn from(recipe: &Recipe) -> Self {
        let promise = recipe.capability;
        Self {
            scheme: recipe.scheme,
            recipe: recipe.name,
            example: recipe.example,
            about: recipe.about,
            reach: promise.reach.to_string(),
            shared: promise.shared,
            permits: promise.permits,
            fair: promise.fair,
            fencing: promise.fencing,
            reentrant: promise.reentrant,
            min_hold: promise.min_hold,
            wakes: wakes(recipe),
            durable: promise.durable,
            session: promise.session,
            inspects: promise.inspects,
            sequences: promise.sequences,
            atomic_multi: promise.atomic_multi,
            portable: promise.portable,
            sound: promise.sound,
            feature: recipe.feature,
            compiled: recipe.compiled,
        }
    }
}
