//! Parses JSON with comments, trailing commas and a byte order mark.
//!
//! A duplicate key is an error, because one of the two values would be lost silently.

use boxwood_api::{BodyError, from_json};
use serde_json::Value;

pub(super) fn parse(text: &str) -> Result<Value, String> {
    let plain = without_comments(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    if plain.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    from_json(plain.as_bytes()).map_err(|error| match error {
        BodyError::Syntax(why) | BodyError::Field(why) => why,
        BodyError::NotAnObject(kind) => format!("it must be a JSON object, not {kind}"),
    })
}

/// Replaces comments, and commas before a closing bracket, by spaces. The position of other bytes does not change, so
/// that the parser's lines and columns are those of the file.
fn without_comments(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut plain = bytes.to_vec();
    let mut fill_spaces = |from: usize, to: usize| {
        for byte in &mut plain[from..to] {
            if *byte != b'\n' && *byte != b'\r' {
                *byte = b' ';
            }
        }
    };
    // The last comma, if only spaces and comments follow it and a value precedes it.
    let mut comma = None;
    let mut previous = b'[';
    let mut index = 0;
    while index < bytes.len() {
        let next = bytes.get(index + 1).copied();
        match (bytes[index], next) {
            (b'"', _) => {
                comma = None;
                previous = b'"';
                index = end_of_string(bytes, index);
                continue;
            }
            (b'/', Some(b'/')) => {
                let end = bytes[index..].iter().position(|byte| *byte == b'\n');
                let end = end.map_or(bytes.len(), |end| index + end);
                fill_spaces(index, end);
                index = end;
                continue;
            }
            (b'/', Some(b'*')) => {
                let end = text[index + 2..].find("*/").map(|end| index + 2 + end + 2);
                let end = end.ok_or_else(|| {
                    let line = text[..index].lines().count();
                    format!("the comment in line {line} is not closed")
                })?;
                fill_spaces(index, end);
                index = end;
                continue;
            }
            (b',', _) => {
                comma = (!matches!(previous, b'[' | b'{' | b',' | b':')).then_some(index);
                previous = b',';
            }
            (byte @ (b']' | b'}'), _) => {
                if let Some(comma) = comma.take() {
                    fill_spaces(comma, comma + 1);
                }
                previous = byte;
            }
            (byte, _) if byte.is_ascii_whitespace() => {}
            (byte, _) => {
                comma = None;
                previous = byte;
            }
        }
        index += 1;
    }
    String::from_utf8(plain).map_err(|error| error.to_string())
}

/// The position after the closing quote.
fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut index = from + 1;
    while index < bytes.len() {
        match bytes[index] {
            b'\\' => index += 2,
            b'"' => return index + 1,
            _ => index += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_ignored() {
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
            parse("\u{feff}{\"a\": [1, -2, 2.5, true, null, \"é\\\"\"]}"),
            Ok(json!({"a": [1, -2, 2.5, true, null, "é\""]}))
        );
    }

    #[test]
    fn invalid_json_is_refused_with_its_position() {
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
    fn a_duplicate_server_is_an_error() {
        let error = parse(r#"{"mcpServers": {"a": {}, "a": {}}}"#).expect_err("twice");
        assert!(error.contains("the key `a` occurs twice"), "{error}");
    }

    #[test]
    fn plain_json_is_left_as_it_is() {
        for text in [
            "{\"a\": [1, {\"b\": \"// \\\\\"}]}",
            "{}",
            "{\"\\u0041,}\": 1}",
        ] {
            assert_eq!(without_comments(text).as_deref(), Ok(text));
            assert_eq!(parse(text).ok(), serde_json::from_str(text).ok());
        }
    }
}
