//! Where a reply of the Redis protocol ends.

/// What a piece of the stream from a server begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// A whole reply of so many bytes. A push (`>`) is none: nobody asked for it.
    Reply { length: usize, asked: bool },
    /// Less than a whole reply.
    Incomplete,
    /// Something else.
    Foreign,
}

/// How the first line of a value says what follows it.
enum Line {
    Whole,
    Bulk(usize),
    Values(usize),
}

/// Looks at the first reply in `bytes`, whose beginning is that of a reply.
///
/// Counts the values still to come instead of descending into them: replies of any depth cost no
/// stack.
pub(super) fn head(bytes: &[u8]) -> Head {
    let Some(first) = bytes.first() else { return Head::Incomplete };
    let mut position = 0;
    let mut pending: usize = 1;
    while pending > 0 {
        let Some(length) = bytes[position..].windows(2).position(|two| two == b"\r\n") else {
            // A line this long without an end is of another protocol.
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
        // An attribute stands before the value it speaks of.
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
