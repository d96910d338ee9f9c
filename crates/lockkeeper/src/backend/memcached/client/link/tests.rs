use super::*;
use crate::backend::memcached::protocol::Code;
use tokio::net::{TcpListener, TcpStream};

/// A connection, and the server's end of it.
async fn connected() -> (Link, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (reader, writer) = ours.unwrap().into_split();
    (Link::start(reader, Writer::Direct(writer), || {}), theirs.unwrap().0)
}

fn get(link: &Link) -> Answer {
    let [answer] = link.send([Request::get(link.number(), "k")]).unwrap();
    answer
}

fn is(reply: Result<Reply, Failure>, code: Code) -> bool {
    matches!(reply, Ok(Reply::Code(it, _)) if it == code)
}

#[tokio::test]
async fn an_answer_whose_caller_left_is_nobody_elses() {
    let (link, mut server) = connected().await;
    // The first caller goes away before its answer.
    drop(get(&link));
    let second = get(&link);
    server.write_all(b"NF O1\r\n").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    server.write_all(b"HD O2\r\n").await.unwrap();
    assert!(is(second.wait().await, Code::Done));
}

#[tokio::test]
async fn an_answer_to_another_request_ends_the_connection() {
    let (link, mut server) = connected().await;
    let (first, second) = (get(&link), get(&link));
    server.write_all(b"HD O2\r\nHD O1\r\n").await.unwrap();
    assert_eq!(first.wait().await, Err(Failure::Broken));
    assert_eq!(second.wait().await, Err(Failure::Broken));
    assert!(!link.is_open() && link.send([Request::plain("mn")]).is_err());
}

#[tokio::test]
async fn bytes_that_nobody_asked_for_end_the_connection() {
    let (link, mut server) = connected().await;
    server.write_all(b"HD\r\n").await.unwrap();
    while link.is_open() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_command_that_was_not_understood_ends_the_connection() {
    let (link, mut server) = connected().await;
    let (first, second) = (get(&link), get(&link));
    server.write_all(b"CLIENT_ERROR bad data chunk\r\nHD O2\r\n").await.unwrap();
    assert!(matches!(first.wait().await, Ok(Reply::Misunderstood(_))));
    assert_eq!(second.wait().await, Err(Failure::Broken));
}

#[tokio::test]
async fn more_than_the_socket_takes_is_sent_all_the_same() {
    let (link, mut server) = connected().await;
    let value = vec![b'x'; 8 << 20];
    let request = Request::set(link.number(), "k", &value, super::super::When::Always, 9);
    let whole = request.bytes.len();
    let [answer] = link.send([request]).unwrap();
    let mut left = whole;
    let mut chunk = vec![0; 1 << 16];
    while left > 0 {
        left -= server.read(&mut chunk).await.unwrap();
    }
    server.write_all(b"HD c1 O1\r\n").await.unwrap();
    assert!(is(answer.wait().await, Code::Done));
}

#[test]
fn it_ends_with_the_runtime_of_its_task() {
    let (short, long) = (|| tokio::runtime::Runtime::new().unwrap(), ());
    let (runtime, other) = (short(), short());
    let (link, server) = runtime.block_on(connected());
    let answer = get(&link);
    runtime.shutdown_background();
    assert_eq!(other.block_on(answer.wait()), Err(Failure::Broken));
    drop((server, long));
}
