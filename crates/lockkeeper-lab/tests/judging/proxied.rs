//! The proxy before a real Redis, where replies can be told apart.

use crate::redis;
use lockkeeper_lab::proxy::{Afterwards, Direction, Flow, Framing, Proxy, Side};
use lockkeeper_lab::server::Server;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub(crate) const CASES: &[crate::Case] = &[
    ("proxy::replies_are_counted_whole", replies_are_counted_whole),
    ("proxy::a_lost_reply_was_carried_out", a_lost_reply_was_carried_out),
    ("proxy::a_black_hole_to_the_server_keeps_requests", black_hole_to_server),
    ("proxy::a_black_hole_to_the_client_keeps_replies", black_hole_to_client),
    ("proxy::a_reset_breaks_the_connection", reset),
    ("proxy::a_late_request_is_carried_out_late", late),
    ("proxy::latency_and_dripping_change_no_reply", slow),
    ("proxy::a_forgotten_server_is_not_missed", forgotten),
    ("proxy::connections_are_refused", refused),
];

const SILENCE: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(10);

struct Line(BufReader<TcpStream>);

impl Line {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        Self(BufReader::new(stream))
    }

    fn send(&self, command: &str) {
        self.0.get_ref().write_all(format!("{command}\r\n").as_bytes()).expect("sent");
    }

    fn hear(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.hear().expect("a reply")
    }

    fn hear_nothing(&mut self) {
        self.0.get_ref().set_read_timeout(Some(SILENCE)).expect("set");
        let error = self.hear().expect_err("nothing was to be heard");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        self.0.get_ref().set_read_timeout(Some(PATIENCE)).expect("set");
    }

    fn hear_reset(&mut self) {
        let error = self.hear().expect_err("a reset was to be heard");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

/// A server, a proxy before it, a line through the proxy that works, and one beside it.
fn started() -> (Server, Proxy, Line, Line) {
    let (server, address) = redis(false);
    let proxy = Proxy::start_framed(address, 7, Framing::Resp).expect("a proxy");
    let (mut through, beside) = (Line::open(proxy.address()), Line::open(address));
    assert_eq!(through.ask("PING"), "+PONG");
    (server, proxy, through, beside)
}

/// Three commands in one write are three replies, and an array is one.
fn replies_are_counted_whole() {
    let (_server, proxy, mut through, _) = started();
    assert_eq!(through.ask("RPUSH list a b c"), ":3");
    proxy.swallow_reply(2, Afterwards::GoOn);
    through.send("INCR n\r\nLRANGE list 0 -1\r\nINCR n");
    assert_eq!(
        (through.hear().expect("one"), through.hear().expect("three")),
        (":1".into(), ":2".into())
    );
    through.hear_nothing();
    let counters = proxy.counters();
    assert_eq!((counters.replies, counters.replies_swallowed), (5, 1));
    assert_eq!(
        counters.swallowed_to_client,
        "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n".len() as u64
    );
}

fn a_lost_reply_was_carried_out() {
    let (_server, proxy, mut through, mut beside) = started();
    proxy.swallow_reply(1, Afterwards::Silence);
    through.send("SET key value");
    through.hear_nothing();
    assert_eq!(beside.ask("EXISTS key"), ":1");
    through.send("SET other value");
    through.hear_nothing();
    proxy.heal();
    through.hear_reset();
    assert_eq!(Line::open(proxy.address()).ask("PING"), "+PONG");
}

fn black_hole_to_server() {
    let (_server, proxy, mut through, mut beside) = started();
    proxy.set(Direction::ToServer, Flow::Swallow);
    through.send("SET key value");
    through.hear_nothing();
    assert_eq!(beside.ask("EXISTS key"), ":0");
    assert!(proxy.counters().swallowed_to_server > 0);
    proxy.heal();
    through.hear_reset();
    assert_eq!(beside.ask("EXISTS key"), ":0");
}

fn black_hole_to_client() {
    let (_server, proxy, mut through, mut beside) = started();
    proxy.set(Direction::ToClient, Flow::Swallow);
    through.send("SET key value");
    through.hear_nothing();
    assert_eq!(beside.ask("EXISTS key"), ":1");
    proxy.heal();
    through.hear_reset();
}

fn reset() {
    let (_server, proxy, mut through, _) = started();
    proxy.reset();
    through.hear_reset();
    assert_eq!(Line::open(proxy.address()).ask("PING"), "+PONG");
}

fn late() {
    let (_server, proxy, mut through, mut beside) = started();
    proxy.set_both(Flow::Hold);
    through.send("SET key value");
    through.hear_nothing();
    assert_eq!(beside.ask("EXISTS key"), ":0");
    proxy.heal();
    assert_eq!(through.hear().expect("late"), "+OK");
    assert_eq!(beside.ask("EXISTS key"), ":1");
}

fn slow() {
    let (_server, proxy, mut through, _) = started();
    let base = Duration::from_millis(30);
    proxy.set_both(Flow::Delay { base, jitter: base });
    let sent = Instant::now();
    assert_eq!(through.ask("SET key value"), "+OK");
    assert!(sent.elapsed() >= 2 * base);
    proxy.set_both(Flow::Drip { bytes: 1, every: Duration::from_millis(1) });
    let sent = Instant::now();
    assert_eq!(through.ask("SET key value"), "+OK");
    assert!(sent.elapsed() >= Duration::from_millis(15), "fifteen bytes there and five back");
}

fn forgotten() {
    let (_server, proxy, mut through, mut beside) = started();
    proxy.forget(Side::Server);
    through.send("SET key value");
    through.hear_nothing();
    assert_eq!(beside.ask("EXISTS key"), ":0");
    proxy.heal();
    through.hear_reset();
}

fn refused() {
    let (_server, proxy, mut through, _) = started();
    proxy.refuse(true);
    let patience = Instant::now() + PATIENCE;
    while TcpStream::connect(proxy.address()).is_ok() {
        assert!(Instant::now() < patience, "never refused");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(through.ask("PING"), "+PONG");
    proxy.heal();
    while TcpStream::connect(proxy.address()).is_err() {
        assert!(Instant::now() < patience, "never accepted again");
        std::thread::sleep(Duration::from_millis(1));
    }
}
