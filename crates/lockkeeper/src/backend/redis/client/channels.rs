//! Channels that claims of this keeper listen to, besides the keeper's own.

use super::roll::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Who of this keeper listens to what.
#[derive(Debug, Default)]
pub(super) struct Channels(Mutex<HashMap<String, Channel>>);

#[derive(Debug)]
struct Channel {
    listeners: usize,
    bell: watch::Sender<()>,
}

impl Channels {
    /// Begins to listen; what is said from here on is not missed once the keeper is subscribed.
    pub(super) fn attend(self: &Arc<Self>, names: [&str; 2]) -> Attention {
        let mut channels = lock(&self.0);
        let heard = names.map(|name| {
            let channel = channels
                .entry(name.to_owned())
                .or_insert_with(|| Channel { listeners: 0, bell: watch::Sender::new(()) });
            channel.listeners += 1;
            channel.bell.subscribe()
        });
        drop(channels);
        Attention { channels: self.clone(), names: names.map(str::to_owned), heard }
    }

    /// Something was said on `name`.
    pub(super) fn heard(&self, name: &str) {
        if let Some(channel) = lock(&self.0).get(name) {
            channel.bell.send_replace(());
        }
    }

    /// Messages may have been missed: all look again.
    pub(super) fn hurry(&self) {
        lock(&self.0).values().for_each(|channel| {
            channel.bell.send_replace(());
        });
    }

    pub(super) fn has(&self, name: &str) -> bool {
        lock(&self.0).contains_key(name)
    }
}

/// One who listens to two channels, until dropped.
#[derive(Debug)]
pub(super) struct Attention {
    channels: Arc<Channels>,
    pub(super) names: [String; 2],
    heard: [watch::Receiver<()>; 2],
}

impl Attention {
    /// From here on counts what is said.
    pub(super) fn begin(&mut self) {
        self.heard.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }

    /// Resolves when something was said since [`begin`](Self::begin).
    pub(super) async fn called(&mut self) {
        let [one, two] = &mut self.heard;
        // Neither can fail: the bells are there for as long as we are.
        tokio::select! {
            _ = one.changed() => {}
            _ = two.changed() => {}
        }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        let mut channels = lock(&self.channels.0);
        for name in &self.names {
            if let Some(channel) = channels.get_mut(name) {
                channel.listeners -= 1;
                if channel.listeners == 0 {
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

    #[test]
    fn each_hears_what_was_said_since_it_began() {
        let channels = Arc::new(Channels::default());
        let mut one = channels.attend(["a", "b"]);
        let mut two = channels.attend(["a", "c"]);
        assert!(one.called().now_or_never().is_none());
        channels.heard("b");
        assert!(one.called().now_or_never().is_some());
        assert!(two.called().now_or_never().is_none());
        channels.heard("a");
        one.begin();
        assert!(one.called().now_or_never().is_none());
        assert!(two.called().now_or_never().is_some());
        channels.hurry();
        assert!(one.called().now_or_never().is_some());
    }

    #[test]
    fn the_last_one_takes_the_channel_along() {
        let channels = Arc::new(Channels::default());
        let one = channels.attend(["a", "b"]);
        let two = channels.attend(["a", "c"]);
        drop(one);
        assert!(channels.has("a") && !channels.has("b"));
        drop(two);
        assert!(!channels.has("a") && !channels.has("c"));
    }
}
