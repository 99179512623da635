//! Compares responses with the recording.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::recording::recordings;

/// An intended difference from the recording.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    recording: String,
    case: String,
    action: String,
    /// The difference, as returned by `differences`.
    what: String,
    why: String,
}

pub(crate) struct Differences {
    intended: Vec<Difference>,
    used: BTreeSet<usize>,
    unexpected: Vec<String>,
}

impl Differences {
    pub(crate) fn of(recording: &str) -> Self {
        let path = recordings().join("differences.json");
        let text = std::fs::read_to_string(path).expect("the list is there");
        let all: Vec<Difference> = serde_json::from_str(&text).expect("a valid list");
        assert!(all.iter().all(|one| !one.why.trim().is_empty()));
        Self {
            intended: all
                .into_iter()
                .filter(|one| one.recording == recording)
                .collect(),
            used: BTreeSet::new(),
            unexpected: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, case: &str, action: &str, recorded: &Value, got: &Value) {
        for what in differences(recorded, got) {
            let known = self
                .intended
                .iter()
                .position(|one| one.case == case && one.action == action && one.what == what);
            match known {
                Some(at) => {
                    self.used.insert(at);
                }
                None => self.unexpected.push(format!(
                    "{case} {action}: {what}\n  recorded {recorded}\n  got {got}"
                )),
            }
        }
    }

    pub(crate) fn settle(self) {
        let idle: Vec<String> = self
            .intended
            .iter()
            .enumerate()
            .filter(|(at, _)| !self.used.contains(at))
            .map(|(_, one)| format!("{} {}: {}", one.case, one.action, one.what))
            .collect();
        assert!(
            self.unexpected.is_empty(),
            "responses differ from the recording:\n{}",
            self.unexpected.join("\n")
        );
        assert!(
            idle.is_empty(),
            "intended differences that did not occur: {idle:#?}"
        );
    }
}

fn differences(recorded: &Value, got: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if recorded["code"] != got["code"] {
        return vec![format!("code {} became {}", recorded["code"], got["code"])];
    }
    if recorded["code"] == 1 {
        let class = |answer: &Value| {
            let message = answer["message"].as_str().unwrap_or_default();
            message.split(':').next().unwrap_or_default().to_owned()
        };
        if class(recorded) != class(got) {
            found.push(format!("{} became {}", class(recorded), class(got)));
        }
        // What follows is for people, but what people know is kept.
        if first_line(recorded) != first_line(got) {
            found.push("the first line of the error".to_owned());
        }
    }
    shape("", recorded, got, &mut found);
    if recorded.pointer("/data/duration_ms").is_some() {
        for field in ["status", "exit_code", "stdout"] {
            if without_numbers(&recorded["data"][field]) != without_numbers(&got["data"][field]) {
                found.push(format!("another {field}"));
            }
        }
    }
    found
}

fn first_line(answer: &Value) -> &str {
    let message = answer["message"].as_str().unwrap_or_default();
    message.lines().next().unwrap_or_default()
}

/// Output may tell the time or count something; what it says around that must be the same.
fn without_numbers(value: &Value) -> Value {
    let Some(text) = value.as_str() else {
        return value.clone();
    };
    let parts = text.split(|c: char| c.is_ascii_digit());
    parts
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("0")
        .into()
}

fn shape(path: &str, recorded: &Value, got: &Value, found: &mut Vec<String>) {
    match (recorded, got) {
        (Value::Object(recorded), Value::Object(got)) => {
            for (key, value) in recorded {
                match got.get(key) {
                    Some(other) => shape(&format!("{path}/{key}"), value, other, found),
                    None => found.push(format!("{path}/{key} is missing")),
                }
            }
            for key in got.keys().filter(|key| !recorded.contains_key(*key)) {
                found.push(format!("{path}/{key} is new"));
            }
        }
        (Value::Array(recorded), Value::Array(got)) => {
            if recorded.len() != got.len() {
                found.push(format!(
                    "{path} has {} instead of {}",
                    got.len(),
                    recorded.len()
                ));
            }
            for (one, other) in recorded.iter().zip(got) {
                shape(&format!("{path}/*"), one, other, found);
            }
        }
        _ if kind(recorded) == kind(got) => {}
        _ => found.push(format!(
            "{path} is {} instead of {}",
            kind(got),
            kind(recorded)
        )),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a float",
        Value::Number(_) => "an integer",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
