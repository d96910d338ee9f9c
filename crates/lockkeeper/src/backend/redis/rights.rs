//! What the user of a keeper may do: looked up when it connects, so that a right that is missing is
//! named then, and not found out in the midst of a script.
//!
//! A recipe lists what it *needs*, without which no lock works, and what it *likes*, without which
//! something works less well. Redis 7 can tell of each command whether the user may run it on a key or
//! a channel, without running it (`redis.acl_check_cmd` in a script); all of them are looked up in one
//! round trip. Redis 6 cannot: there a missing right is found out when it is first used.
//!
//! Some users may only touch the keys of some locks. The key that is tried stands for all, and need not
//! be one of those: so if every command is refused on it, nothing is concluded about keys.

use super::client::Client;
use crate::error::{Error, ErrorKind, Result};
use redis::{ServerErrorKind, Value};

/// Says of each of its arguments, a command with a word per line, whether the user may run it: 1 or
/// 0; or nothing where Redis cannot tell, which is before version 7.
const LOOK: &str = "
if not redis.acl_check_cmd then return false end
local found = {}
for at, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '[^\\n]+') do words[#words + 1] = word end
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  found[at] = known and may and 1 or 0
end
return found";

/// A right that a recipe wants.
#[derive(Debug, Clone)]
pub(super) struct Right {
    /// The command, and what it is to be used on.
    pub(super) words: Vec<String>,
    /// What does not work without it; `None` if nothing does.
    pub(super) only_for: Option<&'static str>,
    /// On a key that stands for those of all locks.
    pub(super) on_key: bool,
    pub(super) standing: Standing,
}

/// Whether the user has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Found,
    Missing,
    /// Redis does not say, or only for keys that are not those of any lock.
    Unknown,
}

/// The rights that a recipe wants.
#[derive(Debug, Default)]
pub(super) struct Wanted(Vec<Right>);

impl Wanted {
    /// These commands on this key.
    pub(super) fn on_key(mut self, key: &str, commands: &[&str]) -> Self {
        let right = |command: &&str| Right {
            words: vec![(*command).to_owned(), key.to_owned()],
            only_for: None,
            on_key: true,
            standing: Standing::Unknown,
        };
        self.0.extend(commands.iter().map(right));
        self
    }

    /// A command without which no lock works.
    pub(super) fn needs(mut self, words: &[&str]) -> Self {
        self.push(words, None);
        self
    }

    /// As [`needs`](Self::needs), where `condition` is true.
    pub(super) fn needs_if(self, condition: bool, words: &[&str]) -> Self {
        if condition { self.needs(words) } else { self }
    }

    /// A command without which something works less well: `only_for` says what.
    pub(super) fn likes(mut self, words: &[&str], only_for: &'static str) -> Self {
        self.push(words, Some(only_for));
        self
    }

    fn push(&mut self, words: &[&str], only_for: Option<&'static str>) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.0.push(Right { words, only_for, on_key: false, standing: Standing::Unknown });
    }

    /// Looks up which of them the user has, in one round trip.
    pub(super) async fn look_up(mut self, client: &Client) -> Result<Vec<Right>> {
        let mut look = redis::cmd("EVAL");
        look.arg(LOOK).arg(0);
        for right in &self.0 {
            look.arg(right.words.join("\n"));
        }
        match client.raw(None, &look).await {
            Ok(Value::Array(found)) => {
                for (right, found) in self.0.iter_mut().zip(found) {
                    let is_found = found == Value::Int(1);
                    right.standing = if is_found { Standing::Found } else { Standing::Missing };
                }
            }
            // Before Redis 7, which cannot tell.
            Ok(_) => {}
            Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => {
                self.0.retain(|right| right.words[0] != "eval");
                let (words, standing) = (vec!["eval".to_owned()], Standing::Missing);
                self.0.push(Right { words, only_for: None, on_key: false, standing });
            }
            Err(error) => return Err(client.connector.explain(error)),
        }
        doubt_keys(&mut self.0);
        Ok(self.0)
    }
}

/// A user may be let at some locks only, and the key that was tried not be one of them: then nothing
/// is known of what it may do with others. It is let in, and a right that is missing is found out
/// when it is first used.
fn doubt_keys(rights: &mut [Right]) {
    let on_keys = || |right: &&mut Right| right.on_key;
    if rights.iter_mut().filter(on_keys()).all(|right| right.standing == Standing::Missing) {
        rights.iter_mut().filter(on_keys()).for_each(|right| right.standing = Standing::Unknown);
    }
}

/// Refuses a user without the rights that every lock needs, and warns of what else is missing.
pub(super) fn judge(rights: &[Right], at: &str) -> Result<()> {
    let missing = || rights.iter().filter(|right| right.standing == Standing::Missing);
    for right in missing() {
        if let Some(only_for) = right.only_for {
            let command = &right.words[0];
            tracing::warn!(store = at, "the user may not run {command}: {only_for}");
        }
    }
    let needed: Vec<_> = missing()
        .filter(|right| right.only_for.is_none())
        .map(|right| right.words[0].as_str())
        .collect();
    if needed.is_empty() {
        return Ok(());
    }
    let granted: Vec<_> = needed.iter().map(|command| format!("+{command}")).collect();
    Err(Error::new(
        ErrorKind::Denied,
        format!(
            "{at} does not let this user run what locks need: {}; `ACL SETUSER name {}` gives it that, \
             and the whole access list is in the documentation of lockkeeper::backend::redis",
            needed.join(", "),
            granted.join(" ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(standings: &[(&str, Option<&'static str>, Standing)]) -> Vec<Right> {
        let right = |(name, only_for, standing): &(&str, Option<&'static str>, Standing)| Right {
            words: vec![(*name).to_owned()],
            only_for: *only_for,
            on_key: false,
            standing: *standing,
        };
        standings.iter().map(right).collect()
    }

    /// The message is what an operator reads: it has to name every missing right, and no other.
    #[test]
    fn what_is_needed_and_missing_is_named_and_nothing_else() {
        let found = rights(&[
            ("get", None, Standing::Found),
            ("set", None, Standing::Missing),
            ("del", None, Standing::Missing),
            ("time", None, Standing::Unknown),
            ("publish", Some("slow"), Standing::Missing),
        ]);
        let error = judge(&found, "redis://here").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("set, del;"), "{error}");
        assert!(error.to_string().contains("`ACL SETUSER name +set +del`"), "{error}");
        assert!(judge(&found[3..], "redis://here").is_ok());
    }

    #[test]
    fn a_key_that_is_out_of_bounds_says_nothing_of_the_commands() {
        let wanted = || Wanted::default().on_key("k", &["get", "set"]).needs(&["time"]);
        let mut all = wanted().0;
        all.iter_mut().for_each(|right| right.standing = Standing::Missing);
        doubt_keys(&mut all);
        let standings: Vec<_> = all.iter().map(|right| right.standing).collect();
        assert_eq!(standings, [Standing::Unknown, Standing::Unknown, Standing::Missing]);
        let mut one = wanted().0;
        one[1].standing = Standing::Missing;
        one[0].standing = Standing::Found;
        doubt_keys(&mut one);
        assert_eq!(one[1].standing, Standing::Missing);
    }
}
