//! How a claim is taken from its holder, and how that learns why.
//!
//! The reason is written to the lock's own node, in the same step in which the claim's is
//! deleted: a child for it would count as a claim to libraries that count children. The last few
//! are kept, so that two who are broken at once both learn why.

use super::request::Answer;
use super::trouble::Fault;
use crate::backend::LossReason;

/// How many reasons are kept.
const KEPT: usize = 8;
const HEAD: &str = "lockkeeper broke";

/// What the lock's node says once the node called `child` was broken, where it said `before`.
pub(super) fn noted(before: &[u8], child: &str, reason: &str) -> String {
    let reason = reason.replace(['\n', '\r'], " ");
    let before = String::from_utf8_lossy(before);
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        before.lines().partition(|line| line.starts_with(HEAD));
    let last = format!("{HEAD} {child} {reason}");
    let kept = &ours[ours.len().saturating_sub(KEPT - 1)..];
    [&theirs, kept, &[last.as_str()]].concat().join("\n")
}

/// Why the node at `path` is gone, by what the lock's node says.
pub(super) fn reason_in(lock: Result<&Answer, &Fault>, path: &str) -> LossReason {
    let child = path.rsplit('/').next().unwrap_or(path);
    let said = lock.ok().and_then(|answer| answer.data().ok());
    let text = said.map(|(data, _)| String::from_utf8_lossy(&data).into_owned());
    let start = format!("{HEAD} {child} ");
    let reason =
        text.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix(&start));
    match reason {
        Some(reason) => LossReason::Broken { reason: reason.to_owned() },
        None => LossReason::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::zookeeper::jute::Packet;

    fn answer(text: &str) -> Answer {
        let mut packet = Packet::new();
        packet.text(text);
        let mut bytes = packet.finish().split_off(4);
        bytes.extend([0; 68]);
        Answer(bytes)
    }

    #[test]
    fn each_learns_its_own_reason() {
        let first = noted(b"", "a-1", "it\nhung");
        let both = noted(first.as_bytes(), "b-2", "why not");
        let reason = |path: &str| reason_in(Ok(&answer(&both)), path);
        assert_eq!(reason("/l/a-1"), LossReason::Broken { reason: "it hung".into() });
        assert_eq!(reason("/l/b-2"), LossReason::Broken { reason: "why not".into() });
        assert_eq!(reason("/l/c-3"), LossReason::Gone);
        assert_eq!(reason_in(Err(&Fault::Over), "/l/a-1"), LossReason::Gone);
    }

    #[test]
    fn old_reasons_go() {
        let mut text = String::from("a note of someone else's");
        for number in 0..20 {
            text = noted(text.as_bytes(), &number.to_string(), "r");
        }
        assert_eq!(text.lines().count(), KEPT + 1);
        assert!(text.starts_with("a note of someone else's\n"));
        assert!(text.contains("broke 19 r") && !text.contains("broke 1 r"));
    }
}
