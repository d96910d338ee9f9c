//! Every store and recipe: how long until a waiter has the lock of one that died.

use super::super::act::{Act, Figure};
use super::super::client::Answer;
use super::super::link::Link;
use super::super::scene::Scene;
use super::super::stage::Stage;
use crate::check::Verdict;
use crate::server::{Kind, Server};
use crate::workload::url;
use anyhow::{Context, Result, bail};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How A goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    Cut,
}

/// The ttl of every claim, and the session of every store that has sessions.
const LEASE: Duration = Duration::from_secs(4);
/// What a store may take on top: a poll, a tick, a busy machine.
const GRACE: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(25);
/// A has held, unrenewed, for so long when it goes.
const HELD: Duration = Duration::from_millis(700);

/// The recipes of a kind of server, and what is added to its URL for each.
fn recipes(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Redis => &[
            ("redis queue", "?recipe=queue"),
            ("redis reentrant", "?recipe=reentrant"),
            ("redis set-nx-px", "?recipe=set-nx-px"),
            ("redis setnx-expire", "?recipe=setnx-expire"),
            ("redis getset", "?recipe=getset"),
        ],
        Kind::Redlock => &[("redlock", "?min_uptime=0s&timeout=1s")],
        Kind::ZooKeeper => &[
            ("zookeeper fair", "/fair?session=4s"),
            ("zookeeper barging", "/barging?recipe=barging&session=4s"),
            ("zookeeper ephemeral", "/ephemeral?recipe=ephemeral&session=4s"),
        ],
        Kind::Memcached => &[("memcached add", "")],
        Kind::Etcd => &[("etcd", "?session=4s")],
        Kind::Postgres => &[
            ("postgres table", "?recipe=table"),
            ("postgres advisory", "?recipe=advisory&session=4s"),
            ("postgres for-update", "?recipe=for-update&session=4s"),
            ("postgres optimistic", "?recipe=optimistic"),
        ],
        Kind::MariaDb => &[
            ("mariadb table", "?recipe=table"),
            ("mariadb get-lock", "?recipe=get-lock&session=4s"),
            ("mariadb for-update", "?recipe=for-update&session=4s"),
            ("mariadb optimistic", "?recipe=optimistic"),
        ],
    }
}

/// One measurement: who, how, and how long.
struct Measured {
    label: &'static str,
    fault: Fault,
    took: Duration,
}

/// One act for each way to go. All recipes of a server are measured at the same time, and the
/// servers one after the other.
pub(super) fn tell(stage: &Stage, faults: &[Fault]) -> Result<Vec<Act>> {
    let mut scenes = Vec::new();
    for fault in faults {
        let heading = match fault {
            Fault::Kill => "kill -9 of the holder, with a lease of 4 s",
            Fault::Cut => "the holder's cable is cut, with a lease of 4 s",
        };
        let mut scene = Scene::cure(stage, heading)?;
        scene.say(match fault {
            Fault::Kill => {
                "In every store A takes a lock, and B waits. A's process is killed 0.7 s later."
            }
            Fault::Cut => {
                "In every store A takes a lock, and B waits. A's cable is cut 0.7 s later."
            }
        });
        scenes.push((*fault, scene));
    }
    let mut measured = Vec::new();
    let kinds = if stage.whole { &Kind::ALL[..] } else { &[Kind::Redis, Kind::Postgres] };
    for kind in kinds {
        let server = stage.lab.start(*kind)?;
        measured.extend(on(&server, *kind, &scenes)?);
    }
    // A file has no cable.
    for (_, scene) in scenes.iter().filter(|(fault, _)| *fault == Fault::Kill) {
        let url = format!("sqlite:{}", stage.lab.folder().join("locks.db").display());
        let (label, fault) = ("sqlite table", Fault::Kill);
        measured.push(Measured { label, fault, took: one(scene, &url, label, fault)? });
    }
    let mut acts = Vec::new();
    for (fault, mut scene) in scenes {
        scene.say(match fault {
            Fault::Kill => "B has the lock of every A that was killed.",
            Fault::Cut => "B has the lock of every A whose cable was cut.",
        });
        acts.push(told(scene, measured.iter().filter(|it| it.fault == fault))?);
    }
    Ok(acts)
}

fn on(server: &Server, kind: Kind, scenes: &[(Fault, Scene<'_>)]) -> Result<Vec<Measured>> {
    scope(|threads| {
        let mut running = Vec::new();
        for (label, tail) in recipes(kind) {
            for (fault, scene) in scenes {
                running.push(threads.spawn(move || {
                    let url = format!("{}{tail}", server.url());
                    let took = one(scene, &url, label, *fault);
                    let took = took.with_context(|| format!("{label}, {fault:?}"))?;
                    Ok(Measured { label, fault: *fault, took })
                }));
            }
        }
        let ended = running.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a measurement panicked"),
        });
        ended.collect()
    })
}

/// How long after the fault B has the lock.
fn one(scene: &Scene<'_>, url: &str, label: &str, fault: Fault) -> Result<Duration> {
    let name = format!("{}-{fault:?}", label.replace(' ', "-"));
    let link = if url::has_hosts(url) { Some(Link::before(url)?) } else { None };
    let way = link.as_ref().map_or_else(|| Ok(url.to_owned()), |link| link.url(url))?;
    let mut a = scene.client(&format!("{label} A"), &way)?;
    let mut b = scene.client(&format!("{label} B"), url)?;
    let answer = a.lock(&name, LEASE, PATIENCE)?;
    scene.must(answer == Answer::Held, format!("{label}: A got {answer:?}"))?;
    b.begin_lock(&name, LEASE, PATIENCE)?;
    sleep(HELD);
    scene.must(b.still_waits(), format!("{label}: B did not wait"))?;
    let begin = Instant::now();
    match fault {
        Fault::Kill => a.kill()?,
        Fault::Cut => link.context("a file has no cable")?.cut_all(),
    }
    let answer = b.answer()?;
    let took = begin.elapsed();
    scene.must(answer == Answer::Held, format!("{label}: B got {answer:?}"))?;
    b.release()?;
    Ok(took)
}

fn told<'m>(scene: Scene<'_>, measured: impl Iterator<Item = &'m Measured>) -> Result<Act> {
    let limit = LEASE + GRACE;
    let mut figures = Vec::new();
    let mut spans = Vec::new();
    for Measured { label, took, .. } in measured {
        let written = format!("{:.2} s", took.as_secs_f64());
        let (what, value, bad) = ((*label).to_owned(), took.as_secs_f64(), *took > limit);
        figures.push(Figure { what, value, written, bad });
        spans.push(*took);
    }
    let (least, most) = (spans.iter().min().copied(), spans.iter().max().copied());
    let (least, most) = (least.unwrap_or_default(), most.unwrap_or_default());
    let broken = scene.broken()?;
    let (verdict, found) = match broken {
        Some(broken) => (Verdict::Fail, broken),
        None => {
            let verdict = if most <= limit { Verdict::Pass } else { Verdict::Fail };
            let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
            let found = format!(
                "free after {least:.1} to {most:.1} s in {} recipes, and no two held at once",
                spans.len()
            );
            (verdict, found)
        }
    };
    Ok(scene.measured(verdict, found, figures))
}
