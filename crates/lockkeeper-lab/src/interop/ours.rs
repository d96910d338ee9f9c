//! Our own side, as a process that can be paused and killed like the others.

use anyhow::Result;
use lockkeeper::blocking::{Guard, Keeper, connect};
use lockkeeper::{ErrorKind, Owner};
use std::collections::HashMap;
use std::process::exit;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Takes locks at `url` as ordered on the input, and answers on the output.
///
/// # Errors
/// When the store cannot be opened.
pub fn serve(url: &str) -> Result<()> {
    // The end of the input also ends this process, but not while it is paused.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let keeper = connect(url)?;
    let (order, orders) = mpsc::channel();
    // In its own thread: a process that waits for a lock must still notice that the input ended.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if order.send(line).is_err() {
                return;
            }
        }
        exit(0);
    });
    println!("ready");
    let mut guards = HashMap::new();
    for line in orders {
        if line == "quit" {
            break;
        }
        match obey(&keeper, &mut guards, &line) {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error {}", error.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}

fn obey(
    keeper: &Keeper,
    guards: &mut HashMap<String, Guard>,
    line: &str,
) -> lockkeeper::Result<String> {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (verb, name) = (word(), word());
    // The side, if it is a read-write lock, and what to do with it.
    let mut parts = verb.split('-');
    let side = parts.clone().find(|part| ["read", "write"].contains(part)).unwrap_or_default();
    let verb = parts.find(|part| *part != side).unwrap_or_default();
    let key = format!("{side} {name}");
    if verb == "unlock" {
        return match guards.remove(&key).map(Guard::release) {
            Some(Ok(())) => Ok("unlocked".to_owned()),
            Some(Err(error)) if error.kind() != ErrorKind::Lost => Err(error),
            _ => Ok("not-held".to_owned()),
        };
    }
    let (number, owner) = (word().parse().unwrap_or_default(), word());
    if verb == "bench" {
        let begin = Instant::now();
        for _ in 0..number {
            keeper.lock(name).acquire()?.release()?;
        }
        return Ok(format!("took {}", begin.elapsed().as_secs_f64()));
    }
    let lock = match side {
        "read" => keeper.rw_lock(name).read(),
        "write" => keeper.rw_lock(name).write(),
        _ => keeper.lock(name),
    };
    let mut lock = lock.ttl(Duration::from_millis(number));
    if !owner.is_empty() {
        lock = lock.owner(&Owner::new(owner)?);
    }
    let taken = if verb == "lock" { Some(lock.acquire()?) } else { lock.try_acquire()? };
    let Some(guard) = taken else { return Ok("busy".to_owned()) };
    guards.insert(key, guard);
    Ok("held".to_owned())
}
