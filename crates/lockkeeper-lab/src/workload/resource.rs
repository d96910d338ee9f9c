//! The resources that the locks protect: each holder reads a number, and writes it back plus one.
//!
//! Reading and writing are two steps, as with any resource that needs a lock; a holder that is
//! paused between them overwrites what others wrote meanwhile. The fenced resource refuses that
//! write.

use super::recorder::Recorder;
use crate::history::What;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

/// One resource.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) value: u64,
    highest_token: u64,
    pub(crate) acknowledged: u64,
}

#[derive(Debug, Default)]
struct State {
    cells: HashMap<(String, bool), Cell>,
    /// Processes that are between reading and writing.
    inside: HashMap<String, usize>,
    /// The process whose requests are blocked for now.
    detained: Option<String>,
}

/// The state, and a condition variable that signals the end of a detention.
#[derive(Debug, Default)]
struct Desk {
    state: Mutex<State>,
    let_go: Condvar,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, once `process` is not detained.
    fn state_for(&self, process: Option<&str>) -> MutexGuard<'_, State> {
        let detained =
            |state: &mut State| process.is_some() && state.detained.as_deref() == process;
        let waited = self.let_go.wait_while(self.state(), detained);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a process at its work until dropped.
#[derive(Debug)]
pub(crate) struct Detained(Arc<Desk>);

impl Drop for Detained {
    fn drop(&mut self) {
        self.0.state().detained = None;
        self.0.let_go.notify_all();
    }
}

/// The resources of a run, kept by the driver and reached over loopback.
#[derive(Debug, Clone)]
pub(crate) struct Resources {
    desk: Arc<Desk>,
    pub(crate) address: SocketAddr,
}

impl Resources {
    /// Opens them. Writes go into the history here, even if the writer is killed before it learns
    /// of them.
    pub(crate) fn open(recorder: Recorder) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        let address = listener.local_addr()?;
        let desk = Arc::new(Desk::default());
        let resources = Self { desk: desk.clone(), address };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (desk, recorder) = (desk.clone(), recorder.clone());
                std::thread::spawn(move || serve(&desk, &recorder, &stream));
            }
        });
        Ok(resources)
    }

    /// The final state of the resources, by name and whether they check tokens.
    pub(crate) fn tally(&self) -> Vec<((String, bool), Cell)> {
        let mut cells: Vec<_> =
            self.desk.state().cells.iter().map(|(key, cell)| (key.clone(), *cell)).collect();
        cells.sort_by(|one, other| one.0.cmp(&other.0));
        cells
    }

    /// Whether a task of `process` is at work on a resource at this moment.
    pub(crate) fn is_inside(&self, process: &str) -> bool {
        self.desk.state().inside.get(process).is_some_and(|tasks| *tasks > 0)
    }

    /// How many writes were accepted so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.desk.state().cells.values().map(|cell| cell.acknowledged).sum()
    }

    /// Blocks the requests of `process`, so that a task that is at work stays at work.
    pub(crate) fn detain(&self, process: &str) -> Detained {
        self.desk.state().detained = Some(process.to_owned());
        Detained(self.desk.clone())
    }
}

/// Serves one client until it disconnects.
fn serve(desk: &Desk, recorder: &Recorder, stream: &TcpStream) {
    let mut inside: Option<String> = None;
    let mut out = stream;
    // Without this every answer would wait for the acknowledgement of the previous one.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let mut state = desk.state_for(inside.as_deref());
        let answer = answer(&mut state, recorder, &mut inside, &line);
        drop(state);
        let Some(answer) = answer else { break };
        if out.write_all(format!("{answer}\n").as_bytes()).is_err() {
            break;
        }
    }
    if let Some(process) = inside {
        leave(&mut desk.state(), &process);
    }
}

fn leave(state: &mut State, process: &str) {
    if let Some(tasks) = state.inside.get_mut(process) {
        *tasks = tasks.saturating_sub(1);
    }
}

fn answer(
    state: &mut State,
    recorder: &Recorder,
    inside: &mut Option<String>,
    line: &str,
) -> Option<String> {
    let words: Vec<&str> = line.split('\t').collect();
    match words[..] {
        ["read", process, name, token] => {
            let token: u64 = token.parse().ok()?;
            if inside.is_none() {
                *inside = Some(process.to_owned());
                *state.inside.entry(process.to_owned()).or_default() += 1;
            }
            let unfenced = state.cells.entry((name.to_owned(), false)).or_default().value;
            let fenced = state.cells.entry((name.to_owned(), true)).or_default();
            // The token is recorded at the read, not only at the write: otherwise a stale writer
            // could slip in between, and be overwritten by a holder that had not seen its write.
            fenced.highest_token = fenced.highest_token.max(token);
            Some(format!("{unfenced}\t{}", fenced.value))
        }
        ["write", client, claim, name, fenced, token, value] => {
            let (token, value): (u64, u64) = (token.parse().ok()?, value.parse().ok()?);
            let (claim, fenced) = (claim.parse().ok()?, fenced == "fenced");
            let name = name.to_owned();
            let cell = state.cells.entry((name.clone(), fenced)).or_default();
            let accepted = !fenced || token >= cell.highest_token;
            if accepted {
                cell.highest_token = cell.highest_token.max(token);
                cell.value = value;
                cell.acknowledged += 1;
            }
            let sequence = cell.acknowledged;
            recorder.note(client, What::Effect { claim, name, fenced, token, accepted, sequence });
            Some(if accepted { "accepted" } else { "refused" }.to_owned())
        }
        ["leave"] => {
            if let Some(process) = inside.take() {
                leave(state, &process);
            }
            Some("left".to_owned())
        }
        _ => None,
    }
}

/// The client that writes, and its claim.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) client: &'a str,
    pub(crate) claim: u64,
    pub(crate) name: &'a str,
    pub(crate) token: u64,
}

/// A client's connection to the resources.
#[derive(Debug)]
pub(crate) struct Access {
    stream: tokio::io::BufStream<tokio::net::TcpStream>,
    process: String,
}

impl Access {
    pub(crate) async fn open(address: SocketAddr, process: &str) -> Result<Self> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: tokio::io::BufStream::new(stream), process: process.to_owned() })
    }

    /// The values of the unfenced and of the fenced resource.
    pub(crate) async fn read(&mut self, by: &Writer<'_>) -> Result<(u64, u64)> {
        let line = format!("read\t{}\t{}\t{}\n", self.process, by.name, by.token);
        let answer = self.ask(&line).await?;
        let (unfenced, fenced) = answer.split_once('\t').context("half an answer")?;
        Ok((unfenced.parse()?, fenced.parse()?))
    }

    /// Writes under a claim, to the fenced or to the unfenced resource; returns whether the resource
    /// took it.
    pub(crate) async fn write(
        &mut self,
        by: &Writer<'_>,
        fenced: bool,
        value: u64,
    ) -> Result<bool> {
        let which = if fenced { "fenced" } else { "plain" };
        let Writer { client, claim, name, token } = by;
        let line = format!("write\t{client}\t{claim}\t{name}\t{which}\t{token}\t{value}\n");
        self.ask(&line).await.map(|answer| answer == "accepted")
    }

    pub(crate) async fn leave(&mut self) -> Result<()> {
        self.ask("leave\n").await.map(|_| ())
    }

    async fn ask(&mut self, line: &str) -> Result<String> {
        self.stream.write_all(line.as_bytes()).await?;
        self.stream.flush().await?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer).await? == 0 {
            bail!("the resources are gone");
        }
        Ok(answer.trim_end().to_owned())
    }
}
