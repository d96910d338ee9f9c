//! Channels that tasks of this keeper are subscribed to, besides the keeper's own.
//!
//! Used by recipes whose channels belong to another library, which publishes to everyone: the message
//! says no more than "look again". So a subscription is a flag that is set, and messages that arrive
//! while a task is busy become one.

use crate::backend::support::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Which channels this keeper's tasks want to hear, by name.
#[derive(Debug, Default)]
pub(super) struct Channels(Mutex<HashMap<String, Channel>>);

/// A channel that some task wants to hear.
#[derive(Debug)]
struct Channel {
    subscriptions: usize,
    notify: watch::Sender<()>,
}

impl Channels {
    /// Begins a subscription: a message that arrives from here on is not missed once the keeper's
    /// connection is subscribed.
    pub(super) fn subscribe(self: &Arc<Self>, names: [&str; 2]) -> Subscription {
        let mut channels = lock(&self.0);
        let messages = names.map(|name| {
            let channel = channels
                .entry(name.to_owned())
                .or_insert_with(|| Channel { subscriptions: 0, notify: watch::Sender::new(()) });
            channel.subscriptions += 1;
            channel.notify.subscribe()
        });
        drop(channels);
        Subscription { channels: self.clone(), names: names.map(str::to_owned), messages }
    }

    /// A message arrived on `name`; whether any task is subscribed to it.
    pub(super) fn notify(&self, name: &str) -> bool {
        let channels = lock(&self.0);
        let channel = channels.get(name);
        if let Some(channel) = channel {
            channel.notify.send_replace(());
        }
        channel.is_some()
    }

    /// Messages may have been missed: every subscription looks for itself.
    pub(super) fn notify_all(&self) {
        lock(&self.0).values().for_each(|channel| {
            channel.notify.send_replace(());
        });
    }

    /// Whether any task is subscribed to it.
    pub(super) fn has(&self, name: &str) -> bool {
        lock(&self.0).contains_key(name)
    }
}

/// A subscription to two channels, until dropped. Two, because Redisson has one for its locks and
/// one for its read-write locks, and a release on either may free the name.
#[derive(Debug)]
pub(crate) struct Subscription {
    channels: Arc<Channels>,
    pub(super) names: [String; 2],
    messages: [watch::Receiver<()>; 2],
}

impl Subscription {
    /// Marks what has arrived so far as seen.
    pub(crate) fn begin(&mut self) {
        self.messages.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }

    /// Resolves when a message arrived, or may have, since [`begin`](Self::begin).
    pub(crate) async fn message(&mut self) {
        let [one, two] = &mut self.messages;
        // Neither can fail: the senders are there for as long as this subscription is.
        tokio::select! {
            _ = one.changed() => {}
            _ = two.changed() => {}
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = lock(&self.channels.0);
        for name in &self.names {
            if let Some(channel) = channels.get_mut(name) {
                channel.subscriptions -= 1;
                if channel.subscriptions == 0 {
                    channels.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// A message from before [`Subscription::begin`] is seen already; one for another channel wakes
    /// nobody.
    #[test]
    fn each_hears_what_was_said_since_it_began() {
        let channels = Arc::new(Channels::default());
        let mut one = channels.subscribe(["a", "b"]);
        let mut two = channels.subscribe(["a", "c"]);
        assert!(one.message().now_or_never().is_none());
        assert!(channels.notify("b") && !channels.notify("d"));
        assert!(one.message().now_or_never().is_some());
        assert!(two.message().now_or_never().is_none());
        channels.notify("a");
        one.begin();
        assert!(one.message().now_or_never().is_none());
        assert!(two.message().now_or_never().is_some());
        channels.notify_all();
        assert!(one.message().now_or_never().is_some());
    }

    /// A channel that stays in the table would stay subscribed to for ever.
    #[test]
    fn the_last_one_takes_the_channel_along() {
        let channels = Arc::new(Channels::default());
        let one = channels.subscribe(["a", "b"]);
        let two = channels.subscribe(["a", "c"]);
        drop(one);
        assert!(channels.has("a") && !channels.has("b"));
        drop(two);
        assert!(!channels.has("a") && !channels.has("c"));
    }
}
