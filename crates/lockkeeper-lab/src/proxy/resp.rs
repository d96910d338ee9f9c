//! Finds where a reply of the Redis protocol ends.

/// What the bytes from a server begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// A whole reply of `length` bytes. `asked` is false for a push (`>`), which answers no
    /// request.
    Reply { length: usize, asked: bool },
    /// Less than a whole reply.
    Incomplete,
    /// Not RESP.
    Foreign,
}

/// What the first line of a value says about what follows.
enum Line {
    Whole,
    Bulk(usize),
    Values(usize),
}

/// Measures the first reply in `bytes`, which must start at the beginning of a reply.
///
/// Counts the values still to come instead of recursing: the nesting depth of a reply costs no
/// stack.
pub(super) fn head(bytes: &[u8]) -> Head {
    let Some(first) = bytes.first() else { return Head::Incomplete };
    let mut position = 0;
    let mut pending: usize = 1;
    while pending > 0 {
        let Some(length) = bytes[position..].windows(2).position(|two| two == b"\r\n") else {
            // A line this long without an end belongs to another protocol.
            return if bytes.len() - position > 64 * 1024 {
                Head::Foreign
            } else {
                Head::Incomplete
            };
        };
        let Some(line) = line(&bytes[position..position + length]) else { return Head::Foreign };
        position += length + 2;
        pending -= 1;
        match line {
            Line::Whole => {}
            Line::Bulk(length) => {
                let end = position.saturating_add(length).saturating_add(2);
                if bytes.len() < end {
                    return Head::Incomplete;
                }
                position = end;
            }
            Line::Values(count) => pending = pending.saturating_add(count),
        }
    }
    Head::Reply { length: position, asked: *first != b'>' }
}

fn line(line: &[u8]) -> Option<Line> {
    let (kind, rest) = line.split_first()?;
    let number = || -> Option<Option<usize>> {
        let text = std::str::from_utf8(rest).ok()?;
        if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
    };
    Some(match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Line::Whole,
        b'$' | b'=' | b'!' => number()?.map_or(Line::Whole, Line::Bulk),
        b'*' | b'~' | b'>' => number()?.map_or(Line::Whole, Line::Values),
        b'%' => Line::Values(number()??.checked_mul(2)?),
        // An attribute stands before the value that it describes.
        b'|' => Line::Values(number()??.checked_mul(2)?.checked_add(1)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_measured() {
        for reply in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":12\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\na\r\nb\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            "%1\r\n+a\r\n*2\r\n:1\r\n:2\r\n",
            "|1\r\n+ttl\r\n:3\r\n$2\r\nhi\r\n",
            "_\r\n",
        ] {
            let length = reply.len();
            let stream = format!("{reply}+NEXT\r\n");
            assert_eq!(head(stream.as_bytes()), Head::Reply { length, asked: true }, "{reply:?}");
            for cut in 0..length {
                assert_eq!(head(&reply.as_bytes()[..cut]), Head::Incomplete, "{reply:?} {cut}");
            }
        }
    }

    #[test]
    fn a_push_was_not_asked_for() {
        let push = b">2\r\n+message\r\n+x\r\n";
        assert_eq!(head(push), Head::Reply { length: push.len(), asked: false });
    }

    #[test]
    fn what_is_no_reply_is_foreign() {
        for bytes in ["HTTP/1.1 200 OK\r\n", "$x\r\n", "\r\n", "*-2\r\n", "%-1\r\n"] {
            assert_eq!(head(bytes.as_bytes()), Head::Foreign, "{bytes:?}");
        }
    }
}
