//! What other versions of the library stored.
//!
//! `version_1.json` has the commands that store what the first build of version 1 stored. It stays
//! as it is for as long as that version is read; another is made by `LOCKKEEPER_SAVE=1 cargo test -p
//! lockkeeper-lab --test redis -- what_an_earlier`.

use crate::{LONG, PATIENT, cases, keeper, waiting};
use anyhow::{Context, Result, ensure};
use lockkeeper::{ErrorKind, FencingToken, Mode};
use lockkeeper_lab::server::{Lab, Server};
use std::time::Duration;

cases!(what_an_earlier_build_stored_is_read, what_a_later_version_stored_is_refused_and_left_alone);

const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/version_1.json");
/// In the place of a time that must not be over.
const LATER: &str = "@LATER@";
/// The names that are stored, and in which way.
const NAMES: [&str; 4] = ["free", "held", "several", "waited"];

/// For what is tried again until its ttl is over.
const SOON: Duration = Duration::from_secs(3);

type Command = Vec<String>;

/// The commands that store what is stored of our names and numbers now.
fn stored(server: &Server) -> Result<Vec<Command>> {
    let mut redis = server.redis()?;
    let mut commands = Vec::new();
    let keys = redis.ask(&["KEYS", "lockkeeper:*"])?;
    let mut keys: Vec<_> =
        keys.list().context("keys")?.iter().filter_map(|key| key.text()).collect();
    keys.sort_unstable();
    for key in keys {
        let kind = redis.ask(&["TYPE", key])?;
        let (read, write): (&[&str], _) = match kind.text() {
            Some("string") => (&["GET", key], "SET"),
            Some("list") => (&["LRANGE", key, "0", "-1"], "RPUSH"),
            Some("hash") => (&["HGETALL", key], "HSET"),
            other => anyhow::bail!("{key} is {other:?}"),
        };
        let said = redis.ask(read)?;
        let mut words: Vec<_> = match said.text() {
            Some(text) => vec![text.to_owned()],
            None => {
                let list = said.list().context("a list")?;
                list.iter().filter_map(|word| word.text()).map(str::to_owned).collect()
            }
        };
        // When a holder of several is over, by the server's clock.
        let fields = if write == "HSET" { &mut words[..] } else { &mut [] };
        for field in fields.chunks_exact_mut(2).filter(|field| field[0].starts_with('h')) {
            let (_, record) = field[1].split_once('\n').context("a record")?;
            field[1] = format!("{LATER}\n{record}");
        }
        commands.push([vec![write.to_owned(), key.to_owned()], words].concat());
    }
    Ok(commands)
}

/// Stores it anew: in each way in which names are stored.
async fn save(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    keeper.lock("free").acquire().await?.release().await?;
    keeper.lock("held").ttl(LONG).note("nightly\nreport").acquire().await?.detach();
    for _ in 0..2 {
        keeper.rw_lock("several").read().ttl(LONG).acquire().await?.detach();
    }
    keeper.lock("waited").ttl(LONG).acquire().await?.detach();
    let lock = keeper.lock("waited").ttl(LONG);
    let waits = tokio::spawn(async move { lock.acquire().await });
    waiting(&keeper, "waited", 1).await;
    keeper.reserve("numbers", 41, 0).await?;
    let stored = stored(&server)?;
    waits.abort();
    // Not of the machine that it was made on.
    let ours = keeper.show("held").await?.holders[0].identity.clone();
    let text = serde_json::to_string_pretty(&stored)?.replace(&ours, "ann@build7 pid 4242");
    std::fs::write(STORED, text + "\n")?;
    Ok(())
}

/// Stores it in a server, as if it had just been stored there.
fn restore(server: &Server) -> Result<()> {
    let commands: Vec<Command> = serde_json::from_str(&std::fs::read_to_string(STORED)?)?;
    let mut redis = server.redis()?;
    let time = redis.ask(&["TIME"])?;
    let seconds: u64 = time.list().and_then(|time| time[0].text()).context("a time")?.parse()?;
    let later = format!("{}000", seconds + LONG.as_secs());
    for command in commands {
        let words: Vec<_> = command.iter().map(|word| word.replace(LATER, &later)).collect();
        redis.ask(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        if NAMES.iter().any(|name| words[1].contains(&format!("{{{name}}}"))) {
            redis.ask(&["PEXPIRE", &words[1], &LONG.as_millis().to_string()])?;
        }
    }
    Ok(())
}

async fn what_an_earlier_build_stored_is_read(lab: &Lab) -> Result<()> {
    if std::env::var_os("LOCKKEEPER_SAVE").is_some() {
        save(lab).await?;
    }
    let server = lab.redis().start()?;
    restore(&server)?;
    let keeper = keeper(&server).await?;
    let listed = keeper.list("").await?;
    let names: Vec<_> = listed.iter().map(|view| view.name.as_str()).collect();
    ensure!(names == ["held", "several", "waited"], "{names:?}");
    ensure!(listed[0].holders[0].note == "nightly\nreport", "{:?}", listed[0]);
    ensure!(listed[1].holders.len() == 2 && listed[1].holders[0].mode == Mode::Shared);
    // Held is held.
    for name in ["held", "several", "waited"] {
        ensure!(keeper.lock(name).try_acquire().await?.is_none(), "{name} was taken twice");
    }
    let reader = keeper.rw_lock("several").read().try_acquire().await?;
    reader.context("readers do not share")?.release().await?;
    // Tokens go on, and the one that waited, whose keeper is dead, is passed over.
    for (name, view) in [("held", &listed[0]), ("waited", &listed[2])] {
        let token = view.holders[0].token.context("a token")?;
        keeper.break_hold(name, token, "the test goes on").await?;
        let guard = keeper.lock(name).acquire_within(PATIENT).await?;
        ensure!(guard.token() > Some(token), "{name}: {:?} after {token}", guard.token());
        guard.release().await?;
    }
    let last = std::fs::read_to_string(STORED)?;
    let last = last.split("\"F").nth(1).and_then(|rest| rest.split('"').next());
    let last = last.and_then(|token| FencingToken::new(token.parse().ok()?));
    let guard = keeper.lock("free").acquire_within(PATIENT).await?;
    ensure!(last.is_some() && guard.token() > last, "{:?} after {last:?}", guard.token());
    ensure!(keeper.reserve("numbers", 1, 0).await? == 42, "numbers began anew");
    Ok(())
}

async fn what_a_later_version_stored_is_refused_and_left_alone(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    let mut redis = server.redis()?;
    let _held = keeper.lock("other").ttl(LONG).acquire().await?;
    // The lock itself; one that waits for a name that nobody holds; one holder of several.
    redis.ask(&["SET", "lockkeeper:{lock}", "V2\nwhatever that means"])?;
    redis.ask(&["RPUSH", "lockkeeper:{queue}:queue", "V2\nwhatever that means"])?;
    redis.ask(&["SET", "lockkeeper:{state}", "M1794700800000000"])?;
    redis.ask(&["HSET", "lockkeeper:{state}:state", "habc", "9999999999999\nV12 whatever"])?;
    for name in ["lock", "queue", "state"] {
        let read = keeper.rw_lock(name).read();
        for outcome in [
            keeper.lock(name).try_acquire().await.map(drop),
            keeper.lock(name).acquire_within(PATIENT).await.map(drop),
            read.try_acquire().await.map(drop),
            keeper.show(name).await.map(drop),
        ] {
            let error = outcome.err().with_context(|| format!("{name} was taken, or shown"))?;
            ensure!(error.kind() == ErrorKind::Store, "{name}: {error:?}");
            let said = error.to_string();
            ensure!(said.contains("later lockkeeper") && said.contains(name), "{said}");
        }
    }
    // What is of this version is shown all the same.
    let listed = keeper.list("").await?;
    ensure!(listed.len() == 1 && listed[0].name.as_str() == "other", "{listed:?}");
    // Nor does withdrawing, which goes on in the background, change anything.
    keeper.close(SOON).await;
    let lock = redis.ask(&["GET", "lockkeeper:{lock}"])?;
    ensure!(lock.text() == Some("V2\nwhatever that means"), "{lock:?}");
    let queue = redis.ask(&["LLEN", "lockkeeper:{queue}:queue"])?;
    ensure!(queue.number() == Some(1), "{queue:?}");
    let holder = redis.ask(&["HGET", "lockkeeper:{state}:state", "habc"])?;
    ensure!(holder.text() == Some("9999999999999\nV12 whatever"), "{holder:?}");
    Ok(())
}
