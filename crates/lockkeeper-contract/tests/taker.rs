//! The taker obeys, and does not outlive its commander.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn it_answers_orders_and_ends_with_its_input() {
    let mut taker = Command::new(env!("CARGO_BIN_EXE_taker"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = taker.stdin.take().unwrap();
    let mut answers = BufReader::new(taker.stdout.take().unwrap()).lines();
    let mut ask = |order: &str| {
        writeln!(orders, "{order}").unwrap();
        answers.next().unwrap().unwrap()
    };
    assert_eq!(ask("memory:"), "- ready");
    assert_eq!(ask("a ping"), "a pong");
    assert!(ask("a take ttl=60000 note=x name=a name with blanks").starts_with("a held "));
    assert_eq!(ask("b take wait=none name=a name with blanks"), "b busy");
    assert!(ask("b take wait=30 name=a name with blanks").starts_with("b error TimedOut"));
    assert_eq!(ask("a held"), "a yes");
    assert_eq!(ask("a lost"), "a no");
    assert_eq!(ask("a release"), "a released");
    assert_eq!(ask("a release"), "a empty");
    assert!(ask("a take name=").starts_with("a error InvalidName"));
    assert!(ask("a dance").starts_with("a error Order"));
    drop(orders);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match taker.try_wait().unwrap() {
            Some(status) => return assert!(status.success(), "{status}"),
            None => assert!(Instant::now() < deadline, "it outlives its input"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
