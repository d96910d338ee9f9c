//! `recipes`: every kind of store and what it promises.

use crate::arguments::RecipesArguments;
use crate::exit::Failure;
use crate::table::{Look, Table};
use crate::{exit, json, output};
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

/// What is left out on a narrow screen, the first one first.
const DISPENSABLE: &[&str] = &[
    "FEATURE",
    "MIN_HOLD",
    "PORTABLE",
    "DURABLE",
    "WAKES",
    "RE-ENTRANT",
    "PERMITS",
    "SHARED",
    "REACH",
];

pub(crate) fn print(asked: &RecipesArguments) -> Result<u8, Failure> {
    let recipes = lockkeeper::recipes();
    output::print(if asked.json {
        json::line(&recipes.iter().map(Described::from).collect::<Vec<_>>())
    } else if asked.markdown {
        markdown(recipes)
    } else {
        human(recipes, asked)
    })?;
    Ok(exit::FINE)
}

fn human(recipes: &[Recipe], asked: &RecipesArguments) -> String {
    let rows: Vec<_> = recipes.iter().map(|recipe| cells(recipe, "yes", "-")).collect();
    let titles = TITLES.map(str::to_uppercase);
    let look = Look::of_stdout(&asked.manner, asked.wide);
    let table = Table::new("", titles.each_ref().map(|title| &**title)).look(look);
    let mut table = table.cut("STORE URL", 30).leave_out(DISPENSABLE);
    let mut text = table.lay_out(&rows);
    let left_out = table.left_out();
    if !left_out.is_empty() {
        text += &format!("{} more columns with --wide\n", left_out.len());
    }
    let mut missing: Vec<_> = recipes.iter().filter(|recipe| !recipe.compiled).collect();
    missing.dedup_by_key(|recipe| recipe.scheme);
    for Recipe { scheme, feature, .. } in missing {
        let feature = feature.unwrap_or_default();
        text += &format!(
            "{scheme}: is not compiled into this program: build it with the feature {feature:?}\n"
        );
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
