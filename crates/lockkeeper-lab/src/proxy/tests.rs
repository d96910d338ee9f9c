//! Every fault on a plain echo server, observed from both sides.

use super::*;
use crate::trials::eventually_so;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener as Listener, TcpStream as Stream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Long enough to conclude that nothing will come.
const SILENCE: Duration = Duration::from_millis(150);
/// Long enough for anything that will come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Echoes everything, and reports how each connection ended: `None` for an orderly end, else the
/// error.
fn echo() -> (SocketAddr, mpsc::Receiver<Option<ErrorKind>>) {
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (tell, ends) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 1024];
                let mut talk = || loop {
                    match (&stream).read(&mut buffer)? {
                        0 => return io::Result::Ok(()),
                        length => (&stream).write_all(&buffer[..length])?,
                    }
                };
                let _ = tell.send(talk().err().map(|error| error.kind()));
            });
        }
    });
    (address, ends)
}

fn connect(proxy: &Proxy) -> Stream {
    let stream = Stream::connect(proxy.address()).expect("connected");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

fn say(mut stream: &Stream, text: &str) {
    stream.write_all(text.as_bytes()).expect("sent");
}

fn hear(mut stream: &Stream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("an answer");
    String::from_utf8(bytes).expect("text")
}

fn hear_nothing(mut stream: &Stream) {
    stream.set_read_timeout(Some(SILENCE)).expect("set");
    let error = stream.read(&mut [0; 64]).expect_err("nothing was to be heard");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
}

fn hear_reset(mut stream: &Stream) {
    let error = stream.read(&mut [0; 64]).expect_err("a reset was to be heard");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

fn talks(stream: &Stream) {
    say(stream, "well?");
    assert_eq!(hear(stream, 5), "well?");
}

fn started() -> (Proxy, mpsc::Receiver<Option<ErrorKind>>) {
    let (upstream, ends) = echo();
    (Proxy::start(upstream, 7).expect("a proxy"), ends)
}

/// The proxy's thread updates its counters a little later.
fn eventually(condition: impl Fn() -> bool) {
    eventually_so("it comes to be", || Ok(condition()));
}

#[test]
fn bytes_and_ends_pass() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    stream.shutdown(std::net::Shutdown::Write).expect("ended");
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(None));
    assert_eq!((&stream).read(&mut [0; 8]).expect("an end"), 0);
    // Bytes are counted after they are forwarded, so the client may see them before.
    eventually(|| proxy.counters().bytes_to_client == 5);
    let counters = proxy.counters();
    assert_eq!((counters.connections, counters.bytes_to_server, counters.hits()), (1, 5, 0));
}

#[test]
fn delays_are_kept_and_so_is_the_order() {
    let (proxy, _ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    let (base, jitter) = (Duration::from_millis(60), Duration::from_millis(40));
    proxy.set(Direction::ToServer, Flow::Delay { base, jitter });
    let sent = Instant::now();
    for letter in ["a", "b", "c", "d", "e", "f"] {
        say(&stream, letter);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(hear(&stream, 6), "abcdef");
    assert!(sent.elapsed() >= base);
    assert_eq!(proxy.counters().hindered, 6);
    proxy.heal();
    talks(&stream);
    assert_eq!(proxy.counters().hindered, 6);
}

#[test]
fn jitter_is_drawn_from_the_seed() {
    let (base, jitter) = (Duration::from_millis(5), Duration::from_millis(3));
    let draw = |seed: u64| {
        let mut dice = crate::dice::Dice::new(seed);
        [(); 20].map(|()| pump::lateness(&mut dice, base, jitter))
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(9));
    assert!(draw(7).iter().all(|late| (base..=base + jitter).contains(late)));
}

#[test]
fn a_black_hole_to_the_server_lets_answers_through() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.set(Direction::ToServer, Flow::Swallow);
    say(&stream, "anyone?");
    hear_nothing(&stream);
    eventually(|| proxy.counters().swallowed_to_server == 7);
    assert!(ends.try_recv().is_err(), "the server was told");
    proxy.heal();
    hear_reset(&stream);
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(Some(ErrorKind::ConnectionReset)));
    talks(&connect(&proxy));
}

#[test]
fn a_black_hole_to_the_client_lets_requests_through() {
    let (proxy, _ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.set(Direction::ToClient, Flow::Swallow);
    say(&stream, "do it");
    hear_nothing(&stream);
    eventually(|| proxy.counters().swallowed_to_client == 5);
    assert_eq!(proxy.counters().bytes_to_server, 10);
    proxy.heal();
    hear_reset(&stream);
}

#[test]
fn a_partition_hides_the_end_of_a_client() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.partition();
    drop(stream);
    assert!(ends.recv_timeout(SILENCE).is_err(), "the server was told");
    proxy.heal();
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(Some(ErrorKind::ConnectionReset)));
}

#[test]
fn who_lost_nothing_in_a_partition_goes_on() {
    let (proxy, _ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.partition();
    std::thread::sleep(SILENCE);
    proxy.heal();
    talks(&stream);
    assert_eq!(proxy.counters().hits(), 0);
}

#[test]
fn a_reset_is_felt_by_both_and_only_by_those_there_are() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.reset();
    hear_reset(&stream);
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(Some(ErrorKind::ConnectionReset)));
    assert_eq!(proxy.counters().resets, 1);
    talks(&connect(&proxy));
}

#[test]
fn a_forgotten_server_is_not_missed_until_healed() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.forget(Side::Server);
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(None));
    say(&stream, "still there?");
    hear_nothing(&stream);
    eventually(|| proxy.counters().swallowed_to_server == 12);
    assert_eq!(proxy.counters().half_open, 1);
    talks(&connect(&proxy));
    proxy.heal();
    hear_reset(&stream);
}

#[test]
fn a_forgotten_client_is_not_missed_until_healed() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.forget(Side::Client);
    assert_eq!((&stream).read(&mut [0; 8]).expect("an end"), 0);
    assert!(ends.recv_timeout(SILENCE).is_err(), "the server was told");
    proxy.heal();
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(Some(ErrorKind::ConnectionReset)));
}

#[test]
fn what_is_held_comes_late_and_in_order() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.set_both(Flow::Hold);
    say(&stream, "one ");
    std::thread::sleep(Duration::from_millis(5));
    say(&stream, "two");
    stream.shutdown(std::net::Shutdown::Write).expect("ended");
    hear_nothing(&stream);
    assert!(ends.try_recv().is_err(), "an end overtook what was before it");
    proxy.set_both(Flow::Pass);
    assert_eq!(hear(&stream, 7), "one two");
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(None));
    assert!(proxy.counters().hindered >= 7);
}

#[test]
fn drops_fall_one_by_one() {
    let (proxy, _ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    let every = Duration::from_millis(20);
    proxy.set(Direction::ToClient, Flow::Drip { bytes: 2, every });
    let sent = Instant::now();
    say(&stream, "12345678");
    assert_eq!(hear(&stream, 2), "12");
    assert_eq!(hear(&stream, 6), "345678");
    assert!(sent.elapsed() >= 3 * every, "four drops are three pauses");
    proxy.heal();
    talks(&stream);
}

#[test]
fn new_connections_are_refused_and_old_ones_are_not() {
    let (proxy, _ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.refuse(true);
    eventually(|| Stream::connect(proxy.address()).is_err());
    let error = Stream::connect(proxy.address()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    talks(&stream);
    proxy.heal();
    eventually(|| Stream::connect(proxy.address()).is_ok());
    talks(&connect(&proxy));
}

#[test]
fn exactly_the_kth_burst_is_swallowed() {
    let (proxy, _ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    proxy.swallow_reply(2, Afterwards::GoOn);
    say(&stream, "one");
    assert_eq!(hear(&stream, 3), "one");
    say(&stream, "two");
    hear_nothing(&stream);
    eventually(|| proxy.counters().replies_swallowed == 1);
    say(&stream, "three");
    assert_eq!(hear(&stream, 5), "three");
    assert_eq!(proxy.counters().replies_swallowed, 1);
}

#[test]
fn silence_behind_a_swallowed_reply_lasts_until_healed() {
    let (proxy, _ends) = started();
    let (stream, other) = (connect(&proxy), connect(&proxy));
    talks(&stream);
    proxy.swallow_reply(1, Afterwards::Silence);
    say(&stream, "one");
    hear_nothing(&stream);
    say(&stream, "two");
    hear_nothing(&stream);
    talks(&other);
    eventually(|| proxy.counters().swallowed_to_client == 6);
    assert_eq!(proxy.counters().replies_swallowed, 1);
    proxy.heal();
    hear_reset(&stream);
    talks(&other);
}

#[test]
fn healing_disarms() {
    let (proxy, _ends) = started();
    let stream = connect(&proxy);
    proxy.swallow_reply(1, Afterwards::GoOn);
    proxy.heal();
    talks(&stream);
    assert_eq!(proxy.counters().replies_swallowed, 0);
}

#[test]
fn a_server_that_is_not_there_is_a_reset() {
    let nobody = Listener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let proxy = Proxy::start(nobody, 7).expect("a proxy");
    hear_reset(&connect(&proxy));
}

#[test]
fn a_server_that_breaks_off_is_passed_on() {
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let proxy = Proxy::start(listener.local_addr().expect("an address"), 7).expect("a proxy");
    let stream = connect(&proxy);
    say(&stream, "hello");
    let (server, _) = listener.accept().expect("a connection");
    // Closed with unread bytes: the kernel sends a reset.
    server.peek(&mut [0; 1]).expect("something");
    drop(server);
    hear_reset(&stream);
}

#[test]
fn dropping_ends_everything() {
    let (proxy, ends) = started();
    let stream = connect(&proxy);
    talks(&stream);
    let (address, control) = (proxy.address(), proxy.control());
    drop(proxy);
    assert!(ends.recv_timeout(PATIENCE).is_ok());
    assert!(!matches!((&stream).read(&mut [0; 8]), Ok(1..)));
    assert_eq!(Stream::connect(address).expect_err("gone").kind(), ErrorKind::ConnectionRefused);
    control.heal();
}
