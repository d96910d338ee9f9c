//! Lua that runs inside Redis.

use redis::Cmd;
use std::fmt;

/// A script and the name Redis knows it by.
pub(super) struct Script {
    code: String,
    digest: String,
}

impl Script {
    pub(super) fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let digest = sha1_smol::Sha1::from(&code).digest().to_string();
        Self { code, digest }
    }

    /// The call by digest: what is sent as long as Redis remembers the script.
    pub(super) fn call(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        Self::command("EVALSHA", &self.digest, keys, arguments)
    }

    /// The call with the code itself, which also makes Redis remember it. Not SCRIPT LOAD: that
    /// would have to reach every node of a cluster, this reaches the one that lacks it.
    pub(super) fn call_in_full(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        Self::command("EVAL", &self.code, keys, arguments)
    }

    fn command(verb: &str, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        let words = keys.iter().map(|key| key.len()).chain(arguments.iter().map(|a| a.len()));
        let length = verb.len() + script.len() + 1 + words.sum::<usize>();
        let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), length);
        command.arg(verb).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in arguments {
            command.arg(argument);
        }
        command
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.digest)
    }
}
