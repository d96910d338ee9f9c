//! What happened in a run, as one line of JSON per event, on one clock for all processes.
//!
//! Stamps are taken before or after a call so that measuring can only make a hold look shorter than
//! it was: every violation that is found is real.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Nanoseconds on the clock that all processes of the machine share.
    pub at: u64,
    /// Which client, such as `2/0`: process 2, task 0.
    pub client: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// How a claim shares its name; see `lockkeeper::Mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// With others that share.
    Shared,
    /// One of this many permits.
    Permit(u32),
}

/// What happened. `claim` numbers are unique in a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A claim is about to be asked for. Stamped before the call.
    Ask {
        /// Its number.
        claim: u64,
        /// The lock's name.
        name: String,
        /// How it is to be shared.
        mode: Mode,
    },
    /// The claim goes on with what another had, by its ticket: it has that one's token. Stamped before
    /// the call.
    Continues {
        /// Its number.
        claim: u64,
        /// The claim that the store granted.
        of: u64,
    },
    /// The claim is known to stand in the queue. Stamped after that was learnt.
    Queued {
        /// Its number.
        claim: u64,
    },
    /// It was granted. Stamped after the call returned.
    Granted {
        /// Its number.
        claim: u64,
        /// Its fencing token; zero where there is none.
        token: u64,
        /// Until when the holder may believe it, on the history's clock.
        valid_until: u64,
    },
    /// It was not granted. Stamped after the call returned.
    Refused {
        /// Its number.
        claim: u64,
        /// How it ended.
        how: Refusal,
    },
    /// The holder learnt that the claim is valid for longer. Stamped after.
    Renewed {
        /// Its number.
        claim: u64,
        /// Until when the holder may believe it now.
        valid_until: u64,
    },
    /// The holder was told that the claim is lost. Stamped after.
    Lost {
        /// Its number.
        claim: u64,
    },
    /// The claim is about to be released. Stamped before the call.
    Release {
        /// Its number.
        claim: u64,
    },
    /// The release returned. Stamped after.
    Released {
        /// Its number.
        claim: u64,
    },
    /// A holder wrote to a resource. Stamped after.
    Effect {
        /// The claim it wrote under.
        claim: u64,
        /// The lock's name, which is also the resource's.
        name: String,
        /// Whether the resource checks tokens.
        fenced: bool,
        /// The token that was sent with the write.
        token: u64,
        /// Whether the resource accepted it.
        accepted: bool,
        /// The resource's own count of accepted writes, this one included.
        sequence: u64,
    },
    /// Numbers were issued. Stamped after the call returned.
    Issued {
        /// Which generator.
        generator: String,
        /// When they were asked for: before the call, on the history's clock.
        asked: u64,
        /// The first of them.
        first: u64,
        /// How many; each is one greater than the one before.
        count: u64,
    },
    /// A fault is about to be injected. Stamped before.
    FaultBegins {
        /// Its number.
        fault: u64,
        /// `kill`, `pause`, …
        kind: String,
        /// The affected process; every client whose name begins with it and a slash is affected.
        process: String,
    },
    /// The fault is over. Stamped after.
    FaultEnds {
        /// Its number.
        fault: u64,
        /// Whether the fault had an effect: a reply that never came cannot be lost.
        #[serde(default = "yes")]
        hit: bool,
    },
    /// All faults are over: from here on every claim must be answered.
    Healed,
    /// What a resource holds at the end, compared with the number of acknowledged writes.
    Tally {
        /// The resource's name.
        name: String,
        /// Whether it checks tokens.
        fenced: bool,
        /// Writes it acknowledged.
        acknowledged: u64,
        /// Writes that it contains.
        present: u64,
    },
    /// A name for which a claim is left in the store at the end.
    Leftover {
        /// The lock's name.
        name: String,
    },
}

fn yes() -> bool {
    true
}

/// Why a claim was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Someone else held it.
    Busy,
    /// The time limit passed.
    TimedOut,
    /// The caller cancelled.
    Cancelled,
    /// The store did not answer.
    Unknown,
}

/// Reads the lines of a history. They may come from several files, in any order.
///
/// # Errors
/// Names the line that is not an event.
pub fn read(lines: impl BufRead) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for (number, line) in lines.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let record = serde_json::from_str(&line).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {error}", number + 1))
        })?;
        records.push(record);
    }
    Ok(records)
}
