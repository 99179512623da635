//! `boxwood serve --stdio`, with what a broken parent would send.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::mutator::Mutator;
use super::recording::{Step, plant, read};
use crate::support::command::boxwood;

const LINES: usize = 10_000;

struct Parent {
    child: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_number: u64,
}

impl Parent {
    fn start(directory: &std::path::Path, settings: &[(&str, &str)]) -> Self {
        let mut child = boxwood()
            .args(["serve", "--stdio", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(directory.join("state"))
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("boxwood serve starts");
        Self {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(child.stdout.take().expect("piped")),
            child,
            last_number: 1 << 40,
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the daemon reads");
    }

    /// Skips responses to earlier requests.
    fn ask(&mut self, action: &str, data: &Value) -> Value {
        self.last_number += 1;
        let number = self.last_number;
        self.say(&json!({"seq_id": number, "action": action, "data": data}).to_string());
        let mut chunks: Option<String> = None;
        loop {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).expect("readable"),
                0,
                "{action}: it ended"
            );
            assert!(line.len() < 64 * 1024, "a line of {} bytes", line.len());
            let mut answer: Value = serde_json::from_str(&line).expect("each line is JSON");
            match answer["type"].as_str() {
                Some("chunk_start") => {
                    chunks = Some(String::new());
                    continue;
                }
                Some("chunk_data") => {
                    let text = answer["data"].as_str().expect("text");
                    chunks.as_mut().expect("begun").push_str(text);
                    continue;
                }
                Some("chunk_end") => {
                    let whole = chunks.take().expect("begun");
                    answer = serde_json::from_str(&whole).expect("the whole is JSON");
                }
                _ => {}
            }
            let message = answer["message"].as_str().unwrap_or_default();
            assert!(
                !message.contains("internal error of the daemon"),
                "a panic: {answer}"
            );
            if answer["seq_id"] == number {
                return answer;
            }
        }
    }

    /// Closes stdin. The daemon must exit with 0 in time.
    fn leave(self) {
        let Self {
            mut child,
            input,
            output,
            ..
        } = self;
        drop(input);
        let reading = std::thread::spawn(move || output.lines().count());
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("its status") {
                assert!(status.success(), "{status}");
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        reading.join().expect("read to the end");
    }
}

#[test]
fn a_parent_on_stdio_is_served_and_closing_stdin_stops_the_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut parent = Parent::start(directory.path(), &[]);
    assert_eq!(parent.ask("__ping", &json!({}))["code"], 0);
    let command = json!({"session_id": "s", "cmd": "printf 'é%.0s' $(seq 30000)"});
    let answer = parent.ask("box_exec", &command);
    assert_eq!(
        answer["data"]["stdout"],
        "é".repeat(30000),
        "{}",
        answer["message"]
    );
    parent.leave();
}

#[test]
fn mutated_lines_on_stdio_do_no_harm() {
    let directory = tempfile::tempdir().expect("a directory");
    let tree = directory.path().join("open");
    plant(&tree);
    let roots = format!("[{:?}]", tree.to_str().expect("plain"));
    let skills = tree.join("skills");
    let mut parent = Parent::start(
        directory.path(),
        &[
            ("BOXWOOD_LANGBOT__ALLOWED_ROOTS", roots.as_str()),
            ("BOXWOOD_SKILLS__ROOT", skills.to_str().expect("plain")),
            ("BOXWOOD_LOG__FILTER", "error"),
        ],
    );
    let mut requests: Vec<Value> = read("v0_4.jsonl", &tree)
        .into_iter()
        .filter_map(|step| match step {
            Step::Ask { request } => Some(request),
            _ => None,
        })
        .collect();
    for request in &mut requests {
        if let Some(command) = request.pointer_mut("/data/cmd") {
            *command = json!("echo hi");
        }
    }
    let mut mutator = Mutator::new(0x0051_7e04);
    for number in 0..LINES {
        let at = mutator.below(requests.len());
        let bent = mutator.bend(&requests[at]).to_string();
        let line = match mutator.below(12) {
            0..=6 => bent,
            7..=9 => mutator.break_text(&bent).replace('\n', " "),
            10 => json!({"type": "chunk_data", "data": bent}).to_string(),
            _ => json!({"type": "chunk_start", "total_size": bent}).to_string(),
        };
        parent.say(&line);
        if number % 50 == 49 {
            assert_eq!(parent.ask("__ping", &json!({}))["code"], 0);
        }
    }
    parent.leave();
}
