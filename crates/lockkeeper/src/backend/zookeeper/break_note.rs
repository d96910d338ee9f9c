//! How the reason of a broken hold reaches its holder.
//!
//! The reason is written to the lock's own node, in the same step in which the claim's node is
//! deleted. A child of its own would count as a claim for libraries that count children. The last
//! few reasons are kept, so that two holders that are broken at once both learn why.
//!
//! ```text
//! data of /lockkeeper/orders after two breaks:
//!
//! an operator's own text
//! lockkeeper broke _c_658e40f9-…-lock-0000000041 the host is being replaced
//! lockkeeper broke _c_1b9d6bcd-…-lock-0000000042 it hung
//! ```

use super::client::{Answer, Failure};
use super::keys::node_name;
use crate::backend::LossReason;

/// How many reasons are kept.
const KEPT: usize = 8;
/// Marks our lines: the rest of the data may be someone else's.
const MARK: &str = "lockkeeper broke";

/// The data of the lock's node after the claim with the node `child` was broken, where the data
/// was `before`.
pub(super) fn add(before: &[u8], child: &str, reason: &str) -> String {
    let reason = reason.replace(['\n', '\r'], " ");
    let before = String::from_utf8_lossy(before);
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        before.lines().partition(|line| line.starts_with(MARK));
    let last = format!("{MARK} {child} {reason}");
    // The data of a node is limited, and old notes are of no use: their holders are gone.
    let kept = &ours[ours.len().saturating_sub(KEPT - 1)..];
    [&theirs, kept, &[last.as_str()]].concat().join("\n")
}

/// Why the node at `path` is gone, by the data of the lock's node. Without a note about it, or
/// without an answer, it is simply gone.
pub(super) fn reason_in(lock: Result<&Answer, &Failure>, path: &str) -> LossReason {
    let data = lock.ok().and_then(|answer| answer.data().ok());
    let text = data.map(|(data, _)| String::from_utf8_lossy(&data).into_owned());
    let start = format!("{MARK} {} ", node_name(path));
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
    use crate::backend::zookeeper::client::data_answer as answer;

    #[test]
    fn each_learns_its_own_reason() {
        let first = add(b"", "a-1", "it\nhung");
        let both = add(first.as_bytes(), "b-2", "why not");
        let reason = |path: &str| reason_in(Ok(&answer(&both)), path);
        assert_eq!(reason("/l/a-1"), LossReason::Broken { reason: "it hung".into() });
        assert_eq!(reason("/l/b-2"), LossReason::Broken { reason: "why not".into() });
        assert_eq!(reason("/l/c-3"), LossReason::Gone);
        assert_eq!(reason_in(Err(&Failure::SessionEnded), "/l/a-1"), LossReason::Gone);
    }

    #[test]
    fn old_reasons_go() {
        let mut text = String::from("a note of someone else's");
        for number in 0..20 {
            text = add(text.as_bytes(), &number.to_string(), "r");
        }
        assert_eq!(text.lines().count(), KEPT + 1);
        assert!(text.starts_with("a note of someone else's\n"));
        assert!(text.contains("broke 19 r") && !text.contains("broke 1 r"));
    }
}
