use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use crate::wire::connection::framing::{Frame, Lines};
use crate::wire::{Message, Object};

use super::raw;

/// Any JSON, laid out in any way, with numbers that no machine has.
fn json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        "-?(0|[1-9][0-9]{0,40})",
        "-?(0|[1-9][0-9]{0,5})\\.[0-9]{1,30}",
        "-?[1-9](e|E)(\\+|-)?[0-9]{1,4}",
    ];
    let text = any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap());
    let escaped = "\"(\\\\u[0-9a-fA-F]{4}|\\\\/|\\\\n|[a-z]){0,6}\"";
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        number,
        text.clone(),
        escaped,
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let blank = prop_oneof![Just(""), Just(" "), Just("\t"), Just("\n"), Just("\r\n")];
        let list = prop::collection::vec(inner.clone(), 0..6);
        let fields = prop::collection::vec((text.clone(), inner), 0..6);
        prop_oneof![
            (list, blank.clone()).prop_map(|(list, blank)| {
                format!("[{blank}{}{blank}]", list.join(&format!("{blank},{blank}")))
            }),
            (fields, blank).prop_map(|(fields, blank)| {
                let fields: Vec<String> = fields
                    .into_iter()
                    .map(|(key, value)| format!("{key}{blank}:{blank}{value}"))
                    .collect();
                format!("{{{blank}{}}}", fields.join(","))
            }),
        ]
    })
}

fn without_line_ends(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_json_goes_through_unchanged(result in json(), extra in json()) {
        let text = format!(r#"{{"extra":{extra},"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let message = Message::parse(text.as_bytes()).unwrap();
        let line = message.line();
        let expected = format!("{}\n", without_line_ends(&text));
        prop_assert_eq!(std::str::from_utf8(&line).unwrap(), expected);
        let again = Message::parse(&line).unwrap().with_id(raw("\"other\"")).json();
        let expected = without_line_ends(&text).replacen("\"id\":1", "\"id\":\"other\"", 1);
        // A value before the id may contain text that looks like an id.
        if !extra.contains("\"id\":1") {
            prop_assert_eq!(std::str::from_utf8(&again).unwrap(), expected);
        }
    }

    #[test]
    fn an_edit_leaves_the_other_fields_as_they_were(a in json(), b in json(), new in json()) {
        let mut object = Object::parse(&format!(r#"{{"a":{a},"x":1,"b":{b}}}"#)).unwrap();
        object.set("x", raw(&new));
        let expected = format!(r#"{{"a":{a},"x":{new},"b":{b}}}"#);
        let edited = object.raw();
        prop_assert_eq!(edited.get(), expected);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::parse(&bytes);
    }

    #[test]
    fn accepted_messages_are_valid_json(bytes in "[\\[{}\\]\",:0-9a-z \\\\]{0,60}") {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{bytes}}}"#);
        if Message::parse(text.as_bytes()).is_ok() {
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }
    }

    #[test]
    fn lines_do_not_depend_on_where_chunks_end(
        text in "[ab\r\n{}\u{e9}]{0,200}",
        cuts in prop::collection::vec(0_usize..220, 0..12),
        limit in 1_usize..60,
    ) {
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut lines = Lines::new(limit);
        let mut got = Vec::new();
        for pair in cuts.windows(2) {
            let chunk = Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]);
            for frame in lines.feed(chunk) {
                match frame {
                    Frame::Line(line) => got.push(Some(line.to_vec())),
                    Frame::OversizedLine(_) => got.push(None),
                }
            }
            let unfinished = lines.unfinished();
            prop_assert!(unfinished.is_none_or(|line| line.bytes <= bytes.len()));
        }
        let mut whole: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        whole.pop();
        let expected: Vec<Option<Vec<u8>>> = whole
            .into_iter()
            .map(|line| (line.len() <= limit).then(|| line.trim_ascii().to_vec()))
            .filter(|line| line.as_ref().is_none_or(|line| !line.is_empty()))
            .collect();
        prop_assert_eq!(got, expected);
    }
}
