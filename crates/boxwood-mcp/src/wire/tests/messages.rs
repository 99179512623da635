use bytes::Bytes;

use crate::wire::connection::framing::OversizedLine;
use crate::wire::connection::framing::{Frame, Lines};
use crate::wire::message::object::BadObject;
use crate::wire::{BadMessage, Kind, Message, Object};

use super::raw;

fn text(message: &Message) -> String {
    String::from_utf8(message.json().to_vec()).unwrap()
}

#[test]
fn a_message_keeps_all_fields() {
    let written = r#"{"zeta":{"b":1,"a":[1.0,1e400,123456789012345678901234567890,-0.0]},"jsonrpc":"2.0","id":"a\u0031","method":"tools/call","params":{"name":"x","arguments":{"\ud800":"\/ \u0000","n":0.1000},"unknown":null,"content":[{"type":"hologram","x":1}]},"extra":true}"#;
    let message = Message::parse(written.as_bytes()).unwrap();
    assert_eq!(text(&message), written);
    assert_eq!(message.method(), Some("tools/call"));
    assert_eq!(message.id().unwrap().get(), r#""a\u0031""#);
}

#[test]
fn client_messages_with_ambiguous_keys_are_refused() {
    let read = |rest: &str| {
        let written = format!(r#"{{"jsonrpc":"2.0",{rest}}}"#);
        Message::parse(written.as_bytes())
            .and_then(Message::of_client)
            .map(drop)
    };
    for odd in [
        r#""id":1,"method":"ping","Method":"tools/call","params":{"name":"secret"}"#,
        r#""id":1,"method":"tools/call","params":{"name":"echo"},"PARAMS":{"name":"secret"}"#,
        r#""id":1,"method":"tools/call","params":{},"param\u017f":{"name":"secret"}"#,
        r#""id":1,"method":"tools/call","params":{"name":"echo","Name":"secret"}"#,
        r#""id":1,"method":"tools/call","params":{"NAME":"secret"}"#,
        r#""id":1,"method":"resources/read","params":{"ur\u0131":"x:y"}"#,
        r#""id":1,"method":"tools/list","params":{"_Meta":{"progressToken":1}}"#,
        r#""id":1,"method":"tools/list","params":{"_meta":{"progressTo\u212aen":1}}"#,
        r#""id":1,"result":{},"Method":"tools/call""#,
        r#""method":"notifications/x","Id":1"#,
    ] {
        let refused = read(odd);
        assert!(matches!(refused, Err(BadMessage::AmbiguousKey(_))), "{odd}");
        // Messages of servers are not checked.
        assert!(Message::parse(format!(r#"{{"jsonrpc":"2.0",{odd}}}"#).as_bytes()).is_ok());
    }
    for fine in [
        r#""id":1,"method":"tools/call","params":{"name":"echo","arguments":{"Name":1,"ID":2}}"#,
        r#""id":1,"method":"vendor/thing","params":{"Name":1,"URI":2,"named":3}"#,
        r#""id":1,"method":"m","params":[1],"idx":1,"methods":[],"Vendor":{"Method":1}"#,
        r#""id":1,"result":{"ID":1,"Method":2,"Params":3}"#,
    ] {
        assert_eq!(read(fine), Ok(()), "{fine}");
    }
}

#[test]
fn a_new_id_changes_nothing_else() {
    let message =
        Message::parse(br#"{"x":1.50,"id":7,"jsonrpc":"2.0","result":{"a":2.00},"y":[]}"#);
    let message = message.unwrap().with_id(raw(r#""mine""#));
    let expected = r#"{"x":1.50,"id":"mine","jsonrpc":"2.0","result":{"a":2.00},"y":[]}"#;
    assert_eq!(text(&message), expected);
}

#[test]
fn a_message_laid_out_over_lines_becomes_one_line() {
    let written = "{\r\n \"jsonrpc\": \"2.0\",\n \"method\": \"m\",\n \"params\": {\n\t\"a\\nb\": [\n1,\r\n2]\n}\n}\n";
    let line = Message::parse(written.as_bytes()).unwrap().line();
    let ends = memchr::memchr_iter(b'\n', &line).count();
    assert_eq!((ends, line.last()), (1, Some(&b'\n')));
    assert!(!line.contains(&b'\r'));
    let before: serde_json::Value = serde_json::from_str(written).unwrap();
    let after: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(before, after);
}

#[test]
fn the_kind_of_a_message_follows_from_its_fields() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, Kind::Request),
        (r#"{"jsonrpc":"2.0","id":"","method":"m"}"#, Kind::Request),
        (r#"{"jsonrpc":"2.0","method":"m"}"#, Kind::Notification),
        (
            r#"{"jsonrpc":"2.0","id":-1.5,"result":null}"#,
            Kind::Response,
        ),
        (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, Kind::Response),
        (r#"{"jsonrpc":"2.0","error":{"code":1}}"#, Kind::Response),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{}}"#,
            Kind::Response,
        ),
        (
            "\t{\"\\u006aso\\u006erpc\":1,\"jsonrpc\":\"2.0\",\"method\":\"m\"} ",
            Kind::Notification,
        ),
    ];
    for (json, kind) in cases {
        let message = Message::parse(json.as_bytes());
        if json.contains("u006a") {
            // The same key in two spellings is the same key.
            assert_eq!(message.unwrap_err(), twice("jsonrpc"), "{json}");
        } else {
            assert_eq!(message.unwrap().kind(), kind, "{json}");
        }
    }
}

fn twice(key: &str) -> BadMessage {
    BadMessage::Json(BadObject::DuplicateKey(key.to_owned()))
}

#[test]
fn invalid_messages_are_refused() {
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#,
        "x".repeat(2000)
    );
    let cases: &[(&str, BadMessage)] = &[
        (r#"{"method":"m"}"#, BadMessage::Version),
        (r#"{"jsonrpc":2.0,"method":"m"}"#, BadMessage::Version),
        (r#"{"level":"info","msg":"up"}"#, BadMessage::Version),
        (r#"{"jsonrpc":"2.0"}"#, BadMessage::Shape),
        (r#"{"jsonrpc":"2.0","result":1}"#, BadMessage::Shape),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
            BadMessage::Shape,
        ),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, BadMessage::Id),
        (
            r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#,
            BadMessage::Id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
            BadMessage::Id,
        ),
        (&long, BadMessage::Id),
        (r#"{"jsonrpc":"2.0","method":7}"#, BadMessage::Method),
        (
            r#"{"jsonrpc":"2.0","method":"m","params":1}"#,
            BadMessage::Params,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"m","method":"n"}"#,
            twice("method"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"n"}"#,
            twice("id"),
        ),
        ("7", BadMessage::Json(BadObject::NotAnObject)),
        ("[]", BadMessage::Batch),
    ];
    for (json, bad) in cases {
        let refused = Message::parse(json.as_bytes()).unwrap_err();
        assert_eq!((&refused, refused.code()), (bad, -32600), "{json}");
    }
    for json in [&b"\xff{}"[..], b"", b"{", b"{}{}", b"nonsense", b"\0"] {
        assert_eq!(Message::parse(json).unwrap_err().code(), -32700, "{json:?}");
    }
}

#[test]
fn deep_nesting_is_forwarded_unparsed() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","method":"m","params":{}{}}}"#,
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let message = Message::parse(deep.as_bytes()).unwrap();
    assert_eq!(text(&message), deep);
    assert!(message.meta().is_none());
}

#[test]
fn an_object_of_very_many_fields_is_refused() {
    let fields: Vec<String> = (0..5000).map(|at| format!(r#""k{at}":1"#)).collect();
    let object = format!("{{{}}}", fields.join(","));
    assert!(matches!(Object::parse(&object), Err(BadObject::NotJson(_))));
}

#[test]
fn an_object_is_edited_in_its_place() {
    let mut object = Object::parse(r#"{"b":1.0,"a":{"x" : 2}, "c":3}"#).unwrap();
    object.set("a", raw("[]"));
    object.set("d", raw("4.00"));
    assert_eq!(object.remove("b").unwrap().get(), "1.0");
    assert_eq!(object.raw().get(), r#"{"a":[],"c":3,"d":4.00}"#);
    assert_eq!(object.iter().count(), 3);
    assert!(!object.is_empty());
}

#[test]
fn arguments_do_not_show_in_debug_output() {
    let secret = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"key":"hunter2"}}"#;
    let message = Message::parse(secret).unwrap();
    let params = Object::parse(message.params().unwrap().get()).unwrap();
    assert!(!format!("{message:?} {params:?}").contains("hunter2"));
}

fn frames(limit: usize, chunks: &[&[u8]]) -> Vec<Result<Vec<u8>, usize>> {
    let mut lines = Lines::new(limit);
    let mut frames = Vec::new();
    for chunk in chunks {
        for frame in lines.feed(Bytes::copy_from_slice(chunk)) {
            frames.push(match frame {
                Frame::Line(line) => Ok(line.to_vec()),
                Frame::OversizedLine(oversized) => Err(oversized.bytes),
            });
        }
    }
    frames
}

#[test]
fn lines_end_with_or_without_a_carriage_return() {
    let got = frames(100, &[b"a\r\nb\n\n\r\n  \nc", b"\r", b"\nd"]);
    let expected: Vec<Result<Vec<u8>, usize>> =
        vec![Ok(b"a".to_vec()), Ok(b"b".to_vec()), Ok(b"c".to_vec())];
    assert_eq!(got, expected);
}

#[test]
fn a_line_too_long_is_reported_at_its_end() {
    let got = frames(4, &[b"12345678", b"9", b"\nok\n", b"123456\nend\n"]);
    let expected = vec![Err(9), Ok(b"ok".to_vec()), Err(6), Ok(b"end".to_vec())];
    assert_eq!(got, expected);
}

fn oversized(text: &str) -> Option<u64> {
    let mut oversized = OversizedLine::default();
    for part in text.as_bytes().chunks(100) {
        oversized.add(part);
    }
    oversized.request_id()
}

#[test]
fn the_call_of_a_long_answer_is_found_before_or_after_the_result() {
    let long = "x".repeat(5000);
    let first = format!(r#"{{"jsonrpc":"2.0","id": 17,"result":"{long}"}}"#);
    let last = format!(r#"{{"result":{{"a":"{long}","id":3}},"jsonrpc":"2.0","id":"18"}}"#);
    assert_eq!(oversized(&first), Some(17));
    assert_eq!(oversized(&last), Some(18));
    assert_eq!(oversized(&long), None);
    assert_eq!(
        oversized(&format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":"{long}"}}"#
        )),
        None
    );
}
