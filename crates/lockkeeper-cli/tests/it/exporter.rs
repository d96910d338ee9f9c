//! `exporter`: what Prometheus gets to read.

use crate::support::{Running, World, code, eventually, lockkeeper, stderr};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

struct Exporter {
    running: Running,
    address: SocketAddr,
}

impl Exporter {
    /// On a port of its own, looking often; once it listens.
    fn start(world: &World, options: &[&str]) -> Self {
        let often: &[&str] = if options.contains(&"--every") { &[] } else { &["--every", "100ms"] };
        let words = [&["exporter", "--listen", "127.0.0.1:0"], often, options].concat();
        let mut command = world.command(&words);
        let mut running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let lines = BufReader::new(running.child().stderr.take().unwrap()).lines();
        let (tell, told) = mpsc::channel();
        // To its end: a full pipe would stop it.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, url)) = line.split_once("listening at http://") {
                    let _ = tell.send(url.split('/').next().unwrap().parse().unwrap());
                }
            }
        });
        let address = told.recv_timeout(Duration::from_secs(60)).expect("it listens");
        Self { running, address }
    }

    fn ask(&self, request: &str) -> String {
        ask(self.address, request)
    }

    fn page(&self) -> String {
        let answer = self.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, page) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        page.to_owned()
    }

    /// Waits until the page has this line.
    #[track_caller]
    fn shows(&self, line: &str) -> String {
        let mut page = String::new();
        eventually(line, || {
            page = self.page();
            page.lines().any(|there| there == line)
        });
        page
    }
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in {page}")).parse().unwrap()
}

#[test]
fn holders_and_waiters_are_counted_by_prefix() {
    let world = World::new();
    let exporter = Exporter::start(&world, &["--prefix", "cron/", "--prefix", "idle/"]);
    let page = exporter.shows("lockkeeper_store_held{prefix=\"other\"} 0");
    assert!(page.contains("lockkeeper_up 1\n"), "{page}");
    let mut holder = world.holder(&[], "cron/night");
    let _waiter = world.start(&["run", "cron/night", "--", "true"]);
    let _other = world.start(&["run", "secret-customer", "--", "sleep", "600"]);
    exporter.shows("lockkeeper_store_waiting{prefix=\"cron/\"} 1");
    let page = exporter.shows("lockkeeper_store_held{prefix=\"other\"} 1");
    assert_eq!(value(&page, "lockkeeper_store_held{prefix=\"cron/\"}"), 1.0);
    assert_eq!(value(&page, "lockkeeper_store_locks{prefix=\"cron/\"}"), 1.0);
    assert_eq!(value(&page, "lockkeeper_store_locks{prefix=\"idle/\"}"), 0.0);
    let hold = value(&page, "lockkeeper_store_oldest_hold_seconds{prefix=\"cron/\"}");
    let wait = value(&page, "lockkeeper_store_oldest_wait_seconds{prefix=\"cron/\"}");
    assert!(hold > 0.0 && wait > 0.0 && hold >= wait, "{page}");
    assert!(!page.contains("secret-customer") && !page.contains("night"), "a name: {page}");
    assert!(value(&page, "lockkeeper_round_trip_seconds") > 0.0);
    holder.signal(Signal::SIGTERM);
    exporter.shows("lockkeeper_store_waiting{prefix=\"cron/\"} 0");
    exporter.shows("lockkeeper_store_locks{prefix=\"cron/\"} 0");
}

/// Looks go on whether anyone asks or not, and not for each that asks.
#[test]
fn scrapes_do_not_look() {
    let world = World::new();
    let exporter = Exporter::start(&world, &["--every", "1h"]);
    for _ in 0..20 {
        let page = exporter.page();
        assert_eq!(value(&page, "lockkeeper_looks_total{outcome=\"ok\"}"), 1.0);
    }
}

#[test]
fn a_signal_ends_it_with_0() {
    let world = World::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut exporter = Exporter::start(&world, &[]);
        exporter.running.signal(signal);
        assert_eq!(exporter.running.wait().code(), Some(0), "{signal}");
        assert!(TcpStream::connect(exporter.address).is_err(), "somebody listens still");
    }
}

#[test]
fn a_port_in_use_is_74_and_says_what_to_do() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = world.output(&["exporter", "--listen", &address]);
    assert_eq!(code(&output), 74, "{output:?}");
    let said = stderr(&output);
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
    // An address of a network for examples, which no machine has.
    let output = world.output(&["exporter", "--listen", "192.0.2.7:9464"]);
    assert_eq!(code(&output), 74, "{output:?}");
}

#[test]
fn what_makes_no_sense_is_64() {
    let world = World::new();
    for (words, hint) in [
        (&["--listen", ":9464"][..], "127.0.0.1:9464"),
        (&["--listen", "localhost:9464"], "127.0.0.1:9464"),
        (&["--prefix", ""], "empty"),
        (&["--prefix", "a", "--prefix", "a"], "twice"),
        (&["--every", "1ms"], "at least"),
        (&["--every", "2d"], "at most a day"),
        (&["--store", "memory:"], "sqlite:"),
        (&["--store", "mongodb://localhost"], "mongodb"),
    ] {
        let port: &[&str] =
            if words.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let output = world.output(&[&["exporter"], port, words].concat());
        assert_eq!(code(&output), 64, "{words:?}: {output:?}");
        assert!(stderr(&output).contains(hint), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn other_questions_are_answered_as_what_they_are() {
    let world = World::new();
    let exporter = Exporter::start(&world, &[]);
    let head = exporter.ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && !head.contains("lockkeeper_up"), "{head}");
    let post = exporter.ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    let none = exporter.ask("GET /secret HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(none.starts_with("HTTP/1.1 404 "), "{none}");
    let root = exporter.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(root.starts_with("HTTP/1.1 200 ") && root.contains("/metrics"), "{root}");
    let nonsense = exporter.ask("\u{1}\u{2}\r\n\r\n");
    assert!(nonsense.starts_with("HTTP/1.1 400 "), "{nonsense}");
    // One that says nothing is in nobody's way.
    let _silent = TcpStream::connect(exporter.address).unwrap();
    exporter.shows("lockkeeper_up 1");
}

/// One that takes connections and says nothing, and one that is not there yet: neither ends it, and neither
/// makes those who ask wait.
#[test]
fn a_store_that_does_not_answer_is_down() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let exporter = Exporter::start(&World::new(), &["--store", &url]);
    let page = exporter.shows("lockkeeper_up 0");
    assert!(!page.contains("lockkeeper_store_"), "{page}");
    assert!(value(&page, "lockkeeper_looks_total{outcome=\"failed\"}") >= 1.0);
    drop((exporter, silent));
    let output = lockkeeper(&["ls", "--store", &url]).output().unwrap();
    assert_eq!(code(&output), 69, "unknown: somebody is there");
    let exporter = Exporter::start(&World::new(), &["--store", &url]);
    exporter.shows("lockkeeper_up 0");
}
