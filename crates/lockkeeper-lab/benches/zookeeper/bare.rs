//! Only ZooKeeper's protocol: the minimum that a lock can cost.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot;

/// One session on one connection, shared by many tasks.
pub(crate) struct Bare {
    state: Arc<Mutex<State>>,
    writer: OwnedWriteHalf,
}

#[derive(Default)]
struct State {
    number: i32,
    pending: VecDeque<oneshot::Sender<Vec<u8>>>,
    watches: HashMap<String, oneshot::Sender<()>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bare {
    pub(crate) async fn connect(address: &str) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut hello = vec![0, 0, 0, 28];
        hello.extend([0; 12]);
        hello.extend(40_000_i32.to_be_bytes());
        hello.extend([0; 12]);
        stream.write_all(&hello).await?;
        let length = stream.read_i32().await?;
        stream.read_exact(&mut vec![0; usize::try_from(length).unwrap_or(0)]).await?;
        let (mut reader, writer) = stream.into_split();
        let state = Arc::new(Mutex::new(State::default()));
        let heard = state.clone();
        tokio::spawn(async move {
            let mut inbox: Vec<u8> = Vec::new();
            while reader.read_buf(&mut inbox).await.is_ok_and(|read| read > 0) {
                let mut at = 0;
                while let Some((length, rest)) = inbox[at..].split_first_chunk() {
                    let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
                    let Some(packet) = rest.get(..length) else { break };
                    hear(&heard, packet);
                    at += 4 + length;
                }
                inbox.drain(..at);
            }
            // Nobody must wait for an answer that will not come: this session sends no heartbeats
            // while idle.
            *lock(&heard) = State::default();
        });
        Ok(Self { state, writer })
    }

    fn send<const N: usize>(
        &self,
        requests: [(i32, Vec<u8>); N],
    ) -> [oneshot::Receiver<Vec<u8>>; N] {
        let mut state = lock(&self.state);
        let mut bytes = Vec::new();
        let answers = requests.map(|(code, body)| {
            state.number += 1;
            bytes.extend(i32::try_from(body.len() + 8).unwrap_or(0).to_be_bytes());
            bytes.extend(state.number.to_be_bytes());
            bytes.extend(code.to_be_bytes());
            bytes.extend(body);
            let (tell, answer) = oneshot::channel();
            state.pending.push_back(tell);
            answer
        });
        let sent = self.writer.try_write(&bytes);
        assert!(sent.is_ok_and(|sent| sent == bytes.len()), "the connection is full");
        answers
    }

    /// Creates a node; `flags` are the protocol's.
    pub(crate) async fn make(&self, path: &str, flags: i32) -> String {
        let [answer] = self.send([(15, create(path, flags))]);
        path_in(&answer.await.expect("an answer")).unwrap_or_default()
    }

    /// Creates a sequential node and lists its siblings, sent together.
    pub(crate) async fn create_and_list(&self, parent: &str) -> String {
        let node = format!("{parent}/_c_658e40f9-714a-4667-8607-f50059b5ee9d-lock-");
        let listed = [text(parent), vec![0]].concat();
        let [created, listed] = self.send([(15, create(&node, 3)), (8, listed)]);
        let created = created.await.expect("an answer");
        listed.await.expect("an answer");
        path_in(&created).expect("a path")
    }

    pub(crate) async fn delete(&self, path: &str) {
        let [answer] = self.send([(2, [text(path), (-1_i32).to_be_bytes().to_vec()].concat())]);
        answer.await.expect("an answer");
    }

    /// Resolves when the node is gone.
    pub(crate) async fn watch(&self, path: &str) -> oneshot::Receiver<()> {
        let (tell, gone) = oneshot::channel();
        lock(&self.state).watches.insert(path.to_owned(), tell);
        let [answer] = self.send([(4, [text(path), vec![1]].concat())]);
        answer.await.expect("an answer");
        gone
    }
}

fn hear(state: &Mutex<State>, packet: &[u8]) {
    let mut state = lock(state);
    if packet.starts_with(&(-1_i32).to_be_bytes()) {
        let path = String::from_utf8_lossy(&packet[28..]).into_owned();
        if let Some(watch) = state.watches.remove(&path) {
            let _ = watch.send(());
        }
    } else if let Some(tell) = state.pending.pop_front() {
        let _ = tell.send(packet.to_vec());
    }
}

fn path_in(answer: &[u8]) -> Option<String> {
    let (length, rest) = answer.get(16..)?.split_first_chunk()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    Some(String::from_utf8_lossy(rest.get(..length)?).into_owned())
}

fn create(path: &str, flags: i32) -> Vec<u8> {
    let mut body = text(path);
    body.extend(text(
        "root@host pid 4242, as long as what we write ourselves, which is a line or so",
    ));
    body.extend(1_i32.to_be_bytes());
    body.extend(31_i32.to_be_bytes());
    body.extend([text("world"), text("anyone")].concat());
    body.extend(flags.to_be_bytes());
    body
}

fn text(text: &str) -> Vec<u8> {
    let length = i32::try_from(text.len()).unwrap_or(0).to_be_bytes();
    [&length, text.as_bytes()].concat()
}
