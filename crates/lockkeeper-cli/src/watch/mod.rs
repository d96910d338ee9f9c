//! `ls --watch`: the list as a live screen.

mod draw;
mod fit;
mod keys;
mod model;
mod screen;

use crate::claim::LAST_WAIT;
use crate::events::{Look, checked, take};
use crate::exit::{self, Failure};
use crate::ticket::Interrupt;
use crate::{Early, claim, local_time};
use keys::Key;
use lockkeeper::{FencingToken, Keeper};
use model::{Model, Wish};
use screen::Screen;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::sleep;

pub(crate) fn watch(
    store: &str,
    prefix: &str,
    every: Duration,
    early: Early,
) -> Result<u8, Failure> {
    if !Screen::is_there() {
        return Err(Failure::usage(
            "--watch needs a terminal: use `lockkeeper events -f` to follow what happens, or \
             `lockkeeper ls --json` to print what is there",
        ));
    }
    let every = checked(every)?;
    crate::wait_for(run(store, prefix, every, early))
}

/// What comes from the tasks that ask the store.
enum News {
    Seen(Look),
    NotSeen(String),
    Did(String),
}

async fn run(store: &str, prefix: &str, every: Duration, early: Early) -> Result<u8, Failure> {
    let mut interrupt = Interrupt::listen(early)?;
    let keeper = tokio::select! {
        biased;
        code = interrupt.code() => return Ok(code),
        keeper = claim::connect(store) => keeper?,
    };
    // What a store cannot do is said before the screen is taken.
    let first = take(&keeper, prefix).await?;
    let mut model = Model::new(keeper.to_string());
    model.update(first.locks, first.is_cut);
    let screen = Screen::take()?;
    let outcome = watching(&keeper, prefix, every, &mut model, &screen, &mut interrupt).await;
    drop(screen);
    keeper.close(LAST_WAIT).await;
    outcome
}

async fn watching(
    keeper: &Keeper,
    prefix: &str,
    every: Duration,
    model: &mut Model,
    screen: &Screen,
    interrupt: &mut Interrupt,
) -> Result<u8, Failure> {
    let gone = |error: std::io::Error| {
        Failure::new(exit::NO_OUTPUT, format!("cannot use the terminal: {error}"))
    };
    let mut keys = keys::listen().map_err(gone)?;
    let (tell, mut news) = mpsc::unbounded_channel();
    look_again(keeper, prefix, every, &tell);
    loop {
        let (columns, lines) = screen.size();
        model.resize(lines.saturating_sub(draw::FRAME));
        let time = local_time::of_day(SystemTime::now());
        screen.show(&draw::draw(model, columns, lines, &time)).map_err(gone)?;
        tokio::select! {
            biased;
            code = interrupt.code() => return Ok(code),
            key = keys.recv() => match key {
                None | Some(Key::HungUp) => return Ok(exit::FINE),
                Some(Key::Interrupt) => return Ok(exit::by_signal(INTERRUPT)),
                // The next round draws anew.
                Some(Key::Resized) => {}
                Some(key) => match model.press(key) {
                    Wish::Nothing => {}
                    Wish::Quit => return Ok(exit::FINE),
                    Wish::Break { name, token, reason } => {
                        break_aside(keeper, name, token, reason, &tell);
                    }
                },
            },
            // There is a sender here, so this never ends.
            Some(news) = news.recv() => match news {
                News::Seen(look) => {
                    model.update(look.locks, look.is_cut);
                    if model.message.starts_with(AWAY) {
                        model.message.clear();
                    }
                    look_again(keeper, prefix, every, &tell);
                }
                News::NotSeen(why) => {
                    model.message = format!("{AWAY}{why}");
                    look_again(keeper, prefix, every, &tell);
                }
                News::Did(what) => model.message = what,
            },
        }
    }
}

const AWAY: &str = "not up to date: ";
const INTERRUPT: i32 = 2;

/// Looks after a pause, in a task of its own: keys work also while the store does not answer.
fn look_again(keeper: &Keeper, prefix: &str, every: Duration, tell: &mpsc::UnboundedSender<News>) {
    let (keeper, prefix, tell) = (keeper.clone(), prefix.to_owned(), tell.clone());
    tokio::spawn(async move {
        sleep(every).await;
        let news = match take(&keeper, &prefix).await {
            Ok(look) => News::Seen(look),
            Err(error) => News::NotSeen(Failure::from(error).message),
        };
        // Nobody listens any more when the screen is closed.
        let _ = tell.send(news);
    });
}

fn break_aside(
    keeper: &Keeper,
    name: String,
    token: FencingToken,
    reason: String,
    tell: &mpsc::UnboundedSender<News>,
) {
    let (keeper, tell) = (keeper.clone(), tell.clone());
    tokio::spawn(async move {
        let outcome = keeper.break_hold(&name, token, &reason).await;
        let _ = tell.send(News::Did(match outcome {
            Ok(()) => format!("{name:?} was taken from the holder with token {token}"),
            Err(error) => Failure::from(error).message,
        }));
    });
}
