//! What the command line says when there is something else behind the port, or a memcached that
//! cannot keep locks.

use crate::{lockkeeper, text};
use anyhow::{Result, ensure};
use libtest_mimic::{Failed, Trial};
use lockkeeper_lab::server::{Kind, Lab, Server, missing};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

type Case = (&'static str, fn(&Lab) -> Result<()>);

const CASES: &[Case] = &[
    ("something_else_behind_the_port_is_said", something_else),
    ("one_without_meta_commands_is_said", without_meta_commands),
    ("one_without_cas_is_said", without_cas),
    ("one_that_wants_a_login_is_said", without_a_login),
    ("one_that_lists_no_keys_is_said", without_a_list),
    ("one_that_is_full_is_said", without_room),
    ("a_ttl_that_is_too_short_is_said", too_short),
];

pub(crate) fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let trial = |&(name, case): &Case| {
        let lab = lab.clone();
        let trial = Trial::test(format!("memcached::{name}"), move || {
            case(&lab).map_err(|error| Failed::from(format!("{error:?}")))
        });
        match missing(&[Kind::Memcached]) {
            Some(reason) => trial.with_kind(reason.to_string()).with_ignored_flag(true),
            None => trial,
        }
    };
    CASES.iter().map(trial).collect()
}

/// A program that says this to every client.
fn somebody(says: &'static str) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut stream, mut inbox) = (stream, [0; 1024]);
                let asked = stream.read(&mut inbox).is_ok_and(|read| read > 0);
                let said = asked && stream.write_all(says.as_bytes()).is_ok();
                while said && stream.read(&mut inbox).is_ok_and(|read| read > 0) {}
            });
        }
    });
    Ok(address)
}

/// Runs the command line at `url`; it must end with `code` and say each of these.
fn says(server: &Server, url: &str, words: &[&str], code: i32, each: &[&str]) -> Result<()> {
    let output = lockkeeper(server, words).env("LOCKKEEPER_STORE", url).output()?;
    let said = text(&output);
    ensure!(output.status.code() == Some(code), "{:?} {said}", output.status);
    for part in each {
        ensure!(said.contains(part), "{part:?} is missing in {said}");
    }
    Ok(())
}

const RUN: &[&str] = &["run", "job", "--", "true"];

fn something_else(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let http = somebody("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
    says(&server, &format!("memcached://{http}"), RUN, 69, &["is no memcached", "the port"])
}

fn without_meta_commands(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let old = somebody("STAT cas_enabled yes\r\nEND\r\nERROR\r\nVERSION 1.4.39\r\nEND\r\n")?;
    says(&server, &format!("memcached://{old}"), RUN, 64, &["no meta commands", "1.6.13"])
}

fn without_cas(lab: &Lab) -> Result<()> {
    let server = lab.memcached().options(&["-C"]).start()?;
    says(&server, &server.url(), RUN, 64, &["without CAS (-C)"])
}

fn without_a_login(lab: &Lab) -> Result<()> {
    let server = lab.memcached().login("locker", "hunter2").start()?;
    says(&server, &server.url(), &["run", "job", "--", "echo", "in"], 0, &["in"])?;
    let url = format!("memcached://locker:hunter3@{}", server.address());
    says(&server, &url, RUN, 77, &["refused the login", "-Y"])
}

fn without_a_list(lab: &Lab) -> Result<()> {
    let server = lab.memcached().options(&["-X"]).start()?;
    says(&server, &server.url(), &["ls"], 64, &["does not list its keys", "-X"])?;
    says(&server, &server.url(), &["show", "job"], 1, &[])
}

fn without_room(lab: &Lab) -> Result<()> {
    let server = lab.memcached().options(&["-m", "2", "-M"]).start()?;
    for size in (40..900).step_by(20) {
        let value = "x".repeat(size);
        let item = |number| format!("ms filler{size}-{number} {size} q\r\n{value}\r\n");
        let batch: String = (0..4000).map(item).collect();
        lockkeeper_lab::server::wire::line::ask(server.port(), &format!("{batch}quit\r\n"))?;
    }
    says(&server, &server.url(), RUN, 69, &["is full", "-m"])
}

fn too_short(lab: &Lab) -> Result<()> {
    let server = lab.memcached().start()?;
    let words = ["run", "--ttl", "1s", "job", "--", "true"];
    says(&server, &server.url(), &words, 64, &["between 2s and 24 hours"])
}
