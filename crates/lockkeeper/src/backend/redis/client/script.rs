//! Lua that runs inside Redis.

use super::link::Form;
use redis::Cmd;
use std::fmt;

/// A script and the name Redis knows it by.
pub(super) struct Script {
    code: String,
    digest: String,
}

/// The keys of a script that has several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// How many there are.
    pub(super) all: usize,
    /// So many of them are keys; those behind are channels.
    pub(super) keys: usize,
    /// Lua that says, while a cluster moves the keys, whether it takes no more than the first.
    pub(super) first_is_enough: &'static str,
}

impl Script {
    /// A script with one key.
    pub(super) fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let digest = sha1_smol::Sha1::from(&code).digest().to_string();
        Self { code, digest }
    }

    /// A script with several keys, all of them in one slot.
    ///
    /// While a cluster moves the slot, a command with several keys is refused (TRYAGAIN) for as long
    /// as some of them do not exist, which is most of the time. So it can be called by its first key
    /// alone, with the others behind the arguments; the node then looks at each key as it is used.
    /// One that does not exist where the slot comes from is refused there, and must be found so
    /// before anything is written.
    pub(super) fn of(places: Places, code: &str) -> Self {
        let Places { all, keys, first_is_enough } = places;
        Self::new(format!(
            "if #KEYS == 1 then
  for _ = 2, {all} do table.insert(KEYS, 2, table.remove(ARGV)) end
  for at = 2, {keys} do
    if type(redis.pcall('EXISTS', KEYS[at])) == 'table' and not ({first_is_enough}) then
      return redis.error_reply('TRYAGAIN the slot is being moved')
    end
  end
end
{code}"
        ))
    }

    /// The call by digest, as long as Redis remembers the script; or with the code itself, which
    /// also makes Redis remember it. Not SCRIPT LOAD: that would have to reach every node of a
    /// cluster, this reaches the one that lacks it.
    pub(super) fn call(&self, form: Form, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        let (verb, script) =
            if form.in_full { ("EVAL", &self.code) } else { ("EVALSHA", &self.digest) };
        let (keys, behind) = keys.split_at(if form.alone { 1.min(keys.len()) } else { keys.len() });
        let words = keys.iter().chain(behind).map(|key| key.len());
        let words = words.chain(arguments.iter().map(|a| a.len()));
        let length = verb.len() + script.len() + 1 + words.sum::<usize>();
        let count = 3 + keys.len() + behind.len() + arguments.len();
        let mut command = Cmd::with_capacity(count, length);
        command.arg(verb).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in arguments {
            command.arg(argument);
        }
        for key in behind {
            command.arg(key);
        }
        command
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.digest)
    }
}
