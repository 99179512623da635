//! A search over a large tree: our tools against commands in the same box.
//!
//! One row compares with a Python script, which does the same steps as LangBot, without its limit of 5,000 files. The
//! other compares with `rg`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::Effort;
use super::baseline::RIPGREP;
use super::clients::http::Connection;
use super::daemon::Daemon;
use super::measure::sample::Samples;
use super::measure::table::{Measured, Row};

const SESSION: &str = "/v1/sessions/bench-search";
const FILES: usize = 100_000;
const NEEDLES: usize = 100;
/// Twenty times as fast.
const AT_MOST: f64 = 0.05;
/// With line numbers. Ignore rules stay on: our grep reads them too.
const RIPGREP_ARGUMENTS: &str = r"-n 'needle_\w+ =' /workspace/tree";

/// A part of the tree: modules of fifty files, each of two hundred lines.
const MAKE: &str = r"
import os, random
random.seed(7)
words = 'def return import class self value index table frame error config session result'.split()
texts = [''.join('    ' + ' '.join(random.choice(words) for _ in range(5)) + '\n' for _ in range(200)) for _ in range(64)]
for number in range(FROM, TO):
    module = number // 50
    place = f'/workspace/tree/package{module // 100:02}/module{module % 100:02}'
    os.makedirs(place, exist_ok=True)
    with open(f'{place}/file{number % 50:02}.py', 'w') as file:
        file.write(texts[number % 64])
        if number % 1000 == 7:
            file.write('needle_in_the_hay = 42\n')
";

const COMMON: &str = r"
import json, os, re
from pathlib import Path
path = '/workspace/tree'
skip_dirs = ['.git', '.tox', '.venv', '__pycache__', 'build', 'dist', 'node_modules', 'venv']
base = Path(path)
def shown(item):
    return os.path.join(path, os.path.relpath(str(item), path)).replace(os.sep, '/')
";

const GREP: &str = r"
regex = re.compile(r'needle_\w+ =')
files = []
for item in base.rglob('*'):
    if any(part in skip_dirs for part in item.parts):
        continue
    if item.is_file():
        files.append(item)
matches = []
for item in files:
    try:
        text = item.read_text(errors='ignore')
    except OSError:
        continue
    for number, line in enumerate(text.splitlines(), 1):
        if regex.search(line):
            matches.append({'file': shown(item), 'line': number, 'content': line.rstrip()})
            if len(matches) >= 200:
                break
    if len(matches) >= 200:
        break
print(json.dumps({'total': len(matches), 'matches': matches}))
";

const GLOB: &str = r"
hits = [item for item in base.rglob('*.py') if not any(part in skip_dirs for part in item.parts)]
hits.sort(key=lambda item: item.stat().st_mtime if item.exists() else 0, reverse=True)
print(json.dumps({'total': len(hits), 'matches': [shown(item) for item in hits[:100]]}))
";

/// The rows with these names, over one tree.
pub(super) fn rows(daemon: &Daemon, effort: Effort, names: &[&str]) -> Vec<Row> {
    let mut connection = open(daemon);
    let mut measure = |compare: Compare| {
        connection
            .as_mut()
            .map_err(|error| anyhow!("{error:#}"))
            .and_then(|connection| compare(connection, effort))
            .unwrap_or_else(|error| (Measured::unknown(&error), String::new()))
    };
    let mut rows = Vec::new();
    if names.contains(&"search") {
        let (result, note) = measure(with_python);
        rows.push(Row {
            what: "grep and glob over 100,000 files, whole HTTP round trips",
            against: "the same with `rglob` and `re` in Python, in the same box",
            at_most: Some(AT_MOST),
            result,
            note,
        });
    }
    if names.contains(&"search-ripgrep") {
        let (result, note) = measure(with_ripgrep);
        rows.push(Row {
            what: "grep over 100,000 files, whole HTTP round trip",
            against: "exec of `rg` in the same box, whole HTTP round trip",
            at_most: None,
            result,
            note,
        });
    }
    if let Ok(mut connection) = connection
        && let Err(error) = connection.call("DELETE", SESSION, "", 200)
    {
        eprintln!("warning: {error:#}");
    }
    rows
}

type Compare = fn(&mut Connection, Effort) -> Result<(Measured, String)>;

/// A session with the tree in it.
fn open(daemon: &Daemon) -> Result<Connection> {
    const STEP: usize = 20_000;
    let mut connection = daemon.connect()?;
    // Two processors and room for the tree; both sides have them.
    let spec = json!({"cpus": 2.0, "memory_mb": 4096, "timeout_sec": 120});
    connection.call("POST", SESSION, &spec.to_string(), 201)?;
    for from in (0..FILES).step_by(STEP) {
        let make = MAKE.replace("FROM", &from.to_string());
        let to = (from + STEP).to_string();
        python(&mut connection, &make.replace("TO", &to))?;
    }
    Ok(connection)
}

fn with_ripgrep(connection: &mut Connection, effort: Effort) -> Result<(Measured, String)> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..effort.of(50) {
        let printed = theirs.time(|| run(connection, &format!("{RIPGREP} {RIPGREP_ARGUMENTS}")))?;
        let found = ours.time(|| grep(connection))?;
        // A side that finds fewer lines is not faster.
        let (printed, found) = (printed_lines(&printed), lines(&found));
        ensure!(found.len() == NEEDLES, "grep found {} lines", found.len());
        ensure!(
            printed == found,
            "`rg` found other lines: {printed:?}, {found:?}"
        );
    }
    let note = format!("a box of two processors; `rg {RIPGREP_ARGUMENTS}` of Debian's package");
    Ok((Measured::times(&ours, &theirs), note))
}

fn with_python(connection: &mut Connection, effort: Effort) -> Result<(Measured, String)> {
    let turns = match effort {
        Effort::Full => 7,
        Effort::Quick => 3,
    };
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..turns {
        let theirs_grep = timed(&mut times[0], || script(connection, GREP))?;
        let ours_grep = timed(&mut times[1], || grep(connection))?;
        let theirs_glob = timed(&mut times[2], || script(connection, GLOB))?;
        let ours_glob = timed(&mut times[3], || {
            let request = json!({"path": "/workspace/tree", "pattern": "*.py"});
            tool(connection, "glob", &request)
        })?;
        // Finding less is not faster.
        for (grep, glob) in [(&theirs_grep, &theirs_glob), (&ours_grep, &ours_glob)] {
            ensure!(grep["total"] == NEEDLES, "grep found {}", grep["total"]);
            ensure!(glob["total"] == FILES, "glob found {}", glob["total"]);
        }
        ensure!(
            lines(&theirs_grep) == lines(&ours_grep),
            "grep found other lines: {theirs_grep}, {ours_grep}"
        );
    }
    let both = |one: &[Duration], other: &[Duration]| {
        let sums = one.iter().zip(other).map(|(one, other)| *one + *other);
        Samples::from(sums.collect::<Vec<_>>())
    };
    let (theirs, ours) = (both(&times[0], &times[2]), both(&times[1], &times[3]));
    let [theirs_grep, ours_grep, theirs_glob, ours_glob] =
        times.map(|times| Samples::from(times).median().as_secs_f64());
    let note = format!(
        "a box of two processors; grep alone is {:.0} times as fast, glob alone {:.0} times",
        theirs_grep / ours_grep,
        theirs_glob / ours_glob
    );
    Ok((Measured::times(&ours, &theirs), note))
}

/// `file:line:content` of every match, sorted, because each side has its own order.
fn lines(found: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let matches = found["matches"].as_array().into_iter().flatten();
    let mut lines: Vec<_> = matches
        .map(|line| {
            let (file, content) = (text(&line["file"]), text(&line["content"]));
            format!("{file}:{}:{content}", line["line"])
        })
        .collect();
    lines.sort();
    lines
}

/// The same of what `rg` printed.
fn printed_lines(printed: &str) -> Vec<String> {
    let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn timed<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let value = work()?;
    times.push(begun.elapsed());
    Ok(value)
}

fn grep(connection: &mut Connection) -> Result<Value> {
    let request = json!({"path": "/workspace/tree", "pattern": r"needle_\w+ ="});
    tool(connection, "grep", &request)
}

fn tool(connection: &mut Connection, name: &str, request: &Value) -> Result<Value> {
    let target = format!("{SESSION}/files/{name}");
    let answer = connection.call("POST", &target, &request.to_string(), 200)?;
    Ok(serde_json::from_str(&answer)?)
}

fn script(connection: &mut Connection, body: &str) -> Result<Value> {
    let printed = python(connection, &format!("{COMMON}{body}"))?;
    serde_json::from_str(&printed).with_context(|| format!("the script said `{printed}`"))
}

fn python(connection: &mut Connection, script: &str) -> Result<String> {
    run(connection, &format!("python3 - <<'END'\n{script}\nEND"))
}

fn run(connection: &mut Connection, cmd: &str) -> Result<String> {
    let request = json!({"cmd": cmd, "timeout_sec": 120});
    let answer = connection.call(
        "POST",
        &format!("{SESSION}/exec"),
        &request.to_string(),
        200,
    )?;
    let answer: Value = serde_json::from_str(&answer)?;
    ensure!(answer["exit_code"] == 0, "a command failed: {answer}");
    Ok(answer["stdout"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_write_a_match_in_the_same_form() {
        let found = json!({"matches": [
            {"file": "/b", "line": 2, "content": "needle = \"x\""},
            {"file": "/a", "line": 1, "content": "needle"},
        ]});
        let printed = "/b:2:needle = \"x\"\n/a:1:needle\n";
        assert_eq!(lines(&found), printed_lines(printed));
        assert_eq!(lines(&found), ["/a:1:needle", "/b:2:needle = \"x\""]);
    }
}
