//! Reads a recording of LangBot's traffic.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The place that the recordings name.
const RECORDED_TREE: &str = "/tmp/box-fixture";

/// The platform's name was replaced in the recordings. Workspace ids are derived from it: the recorded id, and the
/// id of the new name.
const WORKSPACES: [(&str, &str); 2] = [
    ("ws-d3cad8875231cd6fbf51f27c", "ws-e882dffcfd5afa9cc1d5378c"),
    ("ws-972b27bbbf2cafb42ffaafa4", "ws-a0a393182602e4bf13e82383"),
];

#[derive(Debug)]
pub(crate) enum Step {
    /// A whole request.
    Ask {
        request: Value,
    },
    /// A whole answer.
    Hear {
        case: String,
        answer: Value,
    },
    /// A truncated response. Only its success is checked.
    HearAnything {
        seq_id: u64,
    },
    /// A relay is opened: path, headers, whether with the subprotocol.
    Attach {
        case: String,
        path: String,
        headers: Vec<(String, String)>,
        subprotocol: bool,
        accepted: bool,
    },
    Send {
        line: String,
    },
    Receive {
        case: String,
        line: String,
    },
}

pub(crate) fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/langbot/recordings")
}

/// The steps of a recording, with the recorded tree replaced by `tree`.
pub(crate) fn read(name: &str, tree: &Path) -> Vec<Step> {
    let text = std::fs::read_to_string(recordings().join(name)).expect("the recording is there");
    let mut text = text.replace(RECORDED_TREE, tree.to_str().expect("a plain path"));
    for (recorded, real) in WORKSPACES {
        text = text.replace(recorded, real);
    }
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let mut steps = Vec::new();
    let mut case = String::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(comment) = line["comment"].as_str() {
            if let Some(name) = comment.strip_prefix("=== ") {
                name.clone_into(&mut case);
            }
            steps.extend(attachment(&case, comment, lines.get(at + 1)));
        } else {
            steps.extend(step(line));
        }
    }
    steps
}

fn step(line: &Value) -> Option<Step> {
    let case = line["case"].as_str().expect("a case").to_owned();
    let to_server = line["dir"] == "c2s";
    let frame = line.get("frame").cloned();
    if line["chan"] == "relay" {
        let text = match (&frame, line["raw"].as_str()) {
            (Some(frame), _) => frame.to_string(),
            (None, Some(raw)) => raw.to_owned(),
            (None, None) => return None,
        };
        return Some(if to_server {
            Step::Send { line: text }
        } else {
            Step::Receive { case, line: text }
        });
    }
    match (frame, to_server) {
        (Some(request), true) => Some(Step::Ask { request }),
        (Some(answer), false) => Some(Step::Hear { case, answer }),
        (None, true) => None,
        (None, false) => {
            let head = line["raw_head"].as_str()?;
            let digits: String = head
                .strip_prefix("{\"seq_id\": ")?
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            Some(Step::HearAnything {
                seq_id: digits.parse().ok()?,
            })
        }
    }
}

/// `relay handshake GET ws://HOST/PATH headers={'A': 'b'} protocols=('mcp',)`
fn attachment(case: &str, comment: &str, next: Option<&Value>) -> Option<Step> {
    let rest = comment.strip_prefix("relay handshake GET ws://")?;
    let (url, rest) = rest.split_once(" headers={")?;
    let (headers, protocols) = rest.split_once("} protocols=")?;
    let headers = headers
        .split("', '")
        .filter_map(|pair| pair.trim_matches('\'').split_once("': '"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let outcome = next.and_then(|next| next["comment"].as_str())?;
    Some(Step::Attach {
        case: case.to_owned(),
        path: url[url.find('/')?..].to_owned(),
        headers,
        subprotocol: protocols.contains("mcp"),
        accepted: outcome.starts_with("relay open"),
    })
}

/// A tree like the one the recordings were made on.
pub(crate) fn plant(tree: &Path) {
    let write = |path: &str, text: &str| {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
        std::fs::write(path, text).expect("file");
    };
    write("in.txt", "from-host");
    write("em1/a", "A");
    write("em2/b", "B");
    write("scan/a/SKILL.md", "---\nname: scanned\n---\n\nBody\n");
    for directory in ["boxroot", "emws"] {
        std::fs::create_dir_all(tree.join(directory)).expect("directory");
    }
}
