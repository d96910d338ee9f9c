//! The Lua of the queue, put together.
//!
//! A script with a `_full` part has its common case first, written to need few commands; what that
//! does not cover goes on to `lib.lua` and the full part, in the same call.

use crate::backend::redis::client::{KeyCount, Script};

/// Put together once per keeper, since the prefix is part of the code: Redis then knows a script of
/// each prefix by a digest of its own.
///
/// One per request; see [`Requests`](super::requests::Requests).
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) ask: Script,
    pub(super) release: Script,
    pub(super) hand_over: Script,
    pub(super) renew: Script,
    pub(super) leave: Script,
    pub(super) heartbeat: Script,
    pub(super) disown: Script,
    pub(super) break_hold: Script,
    pub(super) show: Script,
}

impl Scripts {
    /// With the prefix of keys and channels written into the code, so that it is not sent each time.
    pub(super) fn new(prefix: &str) -> Self {
        // As a Lua literal: the prefix comes from the URL.
        let prefix = prefix.replace('\\', "\\\\").replace('\'', "\\'");
        let library = include_str!("lib.lua").replace("@PREFIX@", &prefix);
        // Held or kept free by the lock's own key, while nobody waits: then the others do not exist.
        let first_is_enough = "string.find(redis.call('GET', KEYS[1]) or '', '^[XF]')";
        let count = KeyCount { all: 3, keys: 3, first_is_enough };
        let whole = |code: &str| Script::with_keys(count, code);
        // The common case first: it returns before the library is even set up.
        let quick = |quick: &str, full: &str| {
            whole(&format!("{}{library}{full}", quick.replace("@PREFIX@", &prefix)))
        };
        let telling =
            |one: &str, full: &str| quick(&[include_str!("successors.lua"), one].concat(), full);
        let plain = |body: &str| whole(&format!("{library}{body}"));
        Self {
            ask: quick(include_str!("ask.lua"), include_str!("ask_full.lua")),
            release: telling(include_str!("release.lua"), include_str!("release_full.lua")),
            hand_over: telling(include_str!("hand_over.lua"), include_str!("hand_over_full.lua")),
            renew: whole(include_str!("renew.lua")),
            leave: plain(include_str!("leave.lua")),
            heartbeat: plain(include_str!("heartbeat.lua")),
            disown: plain(include_str!("disown.lua")),
            break_hold: plain(include_str!("break.lua")),
            show: plain(include_str!("show.lua")),
        }
    }
}
