use super::*;
use proptest::prelude::*;

fn whole(text: &str) -> Reply {
    let (reply, length) = parse(text.as_bytes()).unwrap().unwrap();
    assert_eq!(length, text.len(), "{text:?}");
    reply
}

#[test]
fn requests_are_pinned() {
    let text = |request: Request| String::from_utf8(request.bytes).unwrap();
    let add = text(Request::set(7, "k", b"data", When::Absent, 32));
    assert_eq!(add, "ms k 4 ME T32 c O7\r\ndata\r\n");
    let keep = text(Request::set(8, "k", b"", When::Is(57), 3));
    assert_eq!(keep, "ms k 0 C57 T3 c O8\r\n\r\n");
    assert_eq!(text(Request::delete(9, "k", 58)), "md k C58 O9\r\n");
    assert_eq!(text(Request::get(10, "k")), "mg k v c t O10\r\n");
    assert_eq!(text(Request::count(11, "k", 2, 5)), "ma k N0 J5 D2 v O11\r\n");
    assert_eq!(text(Request::login("me secret")), "set auth 0 -1 9\r\nme secret\r\n");
}

#[test]
fn answers_are_read() {
    let flags = Flags { cas: 57, ttl: 0, number: Some(7) };
    assert_eq!(whole("HD c57 O7\r\n"), Reply::Code(Code::Done, flags));
    assert!(whole("HD c57 O7\r\n").answers(Some(7)));
    assert!(!whole("HD c57 O7\r\n").answers(Some(8)) && !whole("HD\r\n").answers(Some(8)));
    assert_eq!(whole("EN\r\n"), Reply::Code(Code::Absent, Flags::default()));
    let value = Reply::Value(b"a\r\nb".to_vec(), Flags { cas: 3, ttl: -1, number: None });
    assert_eq!(whole("VA 4 c3 t-1\r\na\r\nb\r\n"), value);
    let stats = Reply::Stats(vec![("pid".into(), "5".into())]);
    assert_eq!(whole("STAT pid 5\r\nEND\r\n"), stats);
    assert_eq!(whole("SERVER_ERROR out\r\n"), Reply::Refused("SERVER_ERROR out".into()));
    assert_eq!(whole("ERROR\r\n"), Reply::Misunderstood("ERROR".into()));
}

#[test]
fn what_is_not_all_there_is_waited_for() {
    for text in ["HD c57 O7\r\n", "VA 4 c3\r\na\r\nb\r\n", "STAT pid 5\r\nEND\r\n"] {
        for cut in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..cut]), Ok(None), "{:?}", &text[..cut]);
        }
    }
}

#[test]
fn what_is_no_memcached_is_told_apart() {
    for text in [
        "HTTP/1.1 400 Bad Request\r\n",
        "-ERR unknown command 'mn'\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "VA x\r\n",
        "VA 99999999999999999999\r\n",
        "VA 1\r\nabc",
        "HD cx\r\n",
        "\u{1b}[31mHD\r\n",
        "STAT pid 5\r\nHD\r\n",
    ] {
        let Nonsense(said) = parse(text.as_bytes()).unwrap_err();
        assert!(!said.chars().any(char::is_control), "{said:?}");
    }
    assert!(parse(&[b'x'; LONGEST_LINE]).is_err());
    assert!(parse(b"\xff\xfe\n").is_err());
}

proptest! {
    #[test]
    fn no_bytes_upset_the_reader(input in any::<Vec<u8>>()) {
        if let Ok(Some((_, length))) = parse(&input) {
            prop_assert!(length > 0 && length <= input.len());
        }
    }
}
