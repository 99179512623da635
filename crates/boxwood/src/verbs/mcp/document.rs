//! Parses JSON with comments, trailing commas and a byte order mark.
//!
//! A duplicate key is an error, because one of the two values would be lost silently.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub(super) fn parse(text: &str) -> Result<Value, String> {
    let plain = without_comments(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let mut reader = serde_json::Deserializer::from_str(&plain);
    let value = Strict
        .deserialize(&mut reader)
        .map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// The same text with blanks for comments and for commas before a closing bracket. Every byte keeps its
/// place, so that the parser's lines and columns are those of the file.
fn without_comments(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut plain = bytes.to_vec();
    let mut blank = |from: usize, to: usize| {
        for byte in &mut plain[from..to] {
            if *byte != b'\n' && *byte != b'\r' {
                *byte = b' ';
            }
        }
    };
    // The last comma, as long as nothing but blanks and comments has followed it and there was
    // something before it to end.
    let mut comma = None;
    let mut before = b'[';
    let mut at = 0;
    while at < bytes.len() {
        let next = bytes.get(at + 1).copied();
        match (bytes[at], next) {
            (b'"', _) => {
                comma = None;
                before = b'"';
                at = end_of_string(bytes, at);
                continue;
            }
            (b'/', Some(b'/')) => {
                let end = bytes[at..].iter().position(|byte| *byte == b'\n');
                let end = end.map_or(bytes.len(), |end| at + end);
                blank(at, end);
                at = end;
                continue;
            }
            (b'/', Some(b'*')) => {
                let end = text[at + 2..].find("*/").map(|end| at + 2 + end + 2);
                let end = end.ok_or_else(|| {
                    let line = text[..at].lines().count();
                    format!("the comment that begins in line {line} has no end")
                })?;
                blank(at, end);
                at = end;
                continue;
            }
            (b',', _) => {
                comma = (!matches!(before, b'[' | b'{' | b',' | b':')).then_some(at);
                before = b',';
            }
            (byte @ (b']' | b'}'), _) => {
                if let Some(comma) = comma.take() {
                    blank(comma, comma + 1);
                }
                before = byte;
            }
            (byte, _) if byte.is_ascii_whitespace() => {}
            (byte, _) => {
                comma = None;
                before = byte;
            }
        }
        at += 1;
    }
    String::from_utf8(plain).map_err(|error| error.to_string())
}

/// The place behind it.
fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A JSON value in which no key stands twice.
#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format!("`{key}` stands there twice")));
            }
            let value = entries.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_passed_over() {
        let text = r#"
        // VS Code writes such files.
        {
            /* block
               comment */
            "servers": {
                "a": {"command": "x", "args": ["//not a comment", "/* nor this */", "a,]",],}, // end
            }, /* , */
        }
        "#;
        let expected = json!({"servers": {"a": {
            "command": "x", "args": ["//not a comment", "/* nor this */", "a,]"],
        }}});
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(
            parse("\u{feff}[1, -2, 2.5, true, null, \"é\\\"\"]"),
            Ok(json!([1, -2, 2.5, true, null, "é\""]))
        );
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        for wrong in [
            "",
            "{",
            "[1,,]",
            "{,}",
            "[,]",
            "\"x",
            "{\"a\" 1}",
            "1 2",
            "/* open",
            "/",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let error = parse("{\n  // fine\n  \"a\": nope\n}").expect_err("no JSON");
        assert!(error.contains("line 3"), "{error}");
    }

    #[test]
    fn a_server_that_stands_there_twice_is_not_lost_in_silence() {
        let error = parse(r#"{"mcpServers": {"a": {}, "a": {}}}"#).expect_err("twice");
        assert!(error.contains("`a` stands there twice"), "{error}");
    }

    #[test]
    fn plain_json_is_left_as_it_is() {
        for text in ["{\"a\": [1, {\"b\": \"// \\\\\"}]}", "[]", "\"\\u0041,}\""] {
            assert_eq!(without_comments(text).as_deref(), Ok(text));
            assert_eq!(parse(text).ok(), serde_json::from_str(text).ok());
        }
    }
}
