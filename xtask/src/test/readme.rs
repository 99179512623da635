//! Runs the first command of the README unchanged.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use super::rootless::User;
use crate::run::{as_from_a_shell, is_root, output, target_dir, workspace_root};

/// The beginning of the first command, before the arguments of `boxwood`.
const CARGO_RUN: &str = "cargo run --release -- ";

static BUILD: Mutex<Option<Child>> = Mutex::new(None);

/// Starts the release build that the command needs, with low priority, while other tiers run.
pub(super) fn build_in_background() {
    let mut build = Command::new("nice");
    build
        .args(["-n", "19", "cargo", "build", "--release", "--quiet"])
        .current_dir(workspace_root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    as_from_a_shell(&mut build);
    if let (Ok(mut slot), Ok(build)) = (BUILD.lock(), build.spawn()) {
        *slot = Some(build);
    }
}

/// Ends the build if it still runs.
pub(super) fn end_build() {
    if let Some(mut build) = take_build() {
        let _ = build.kill();
        let _ = build.wait();
    }
}

fn take_build() -> Option<Child> {
    BUILD.lock().ok().and_then(|mut slot| slot.take())
}

pub(super) fn check_first_command() -> Result<()> {
    // Its result does not matter: the command builds what is missing and reports errors.
    if let Some(mut build) = take_build() {
        let _ = build.wait();
    }
    let readme = fs::read_to_string(workspace_root().join("README.md"))?;
    let example = first_example(&readme).context("README.md has no `$ command` in a code block")?;
    println!("$ {}", example.command);
    let mut command = Command::new("sh");
    command
        .args(["-c", &example.command])
        .current_dir(workspace_root());
    as_from_a_shell(&mut command);
    let printed = output(&mut command)?;
    ensure_same(&printed, &example.prints)?;

    if is_root() {
        let words = example.command.strip_prefix(CARGO_RUN).with_context(|| {
            format!("README.md's first command does not start with `{CARGO_RUN}`")
        })?;
        let user = User::ensure()?;
        let directory = user.directory("readme")?;
        fs::copy(
            target_dir().join("release/boxwood"),
            directory.join("boxwood"),
        )?;
        println!("$ ./boxwood {words}   (as {})", super::rootless::USER);
        let printed = output(
            user.command("/bin/sh".as_ref())
                .args(["-c", &format!("./boxwood {words}")])
                .current_dir(&directory),
        );
        let removed = fs::remove_dir_all(&directory);
        ensure_same(&printed?, &example.prints)?;
        removed?;
    }
    Ok(())
}

struct Example {
    command: String,
    prints: String,
}

/// The first line of a code block that begins with `$ `, and the lines after it up to the next
/// command or the end of the block.
fn first_example(markdown: &str) -> Option<Example> {
    let mut in_block = false;
    let mut found: Option<Example> = None;
    for line in markdown.lines() {
        if line.starts_with("```") {
            if found.is_some() {
                break;
            }
            in_block = !in_block;
        } else if in_block {
            match (&mut found, line.strip_prefix("$ ")) {
                (None, Some(command)) => {
                    found = Some(Example {
                        command: command.to_owned(),
                        prints: String::new(),
                    });
                }
                (Some(_), Some(_)) => break,
                (Some(example), None) => {
                    example.prints.push_str(line);
                    example.prints.push('\n');
                }
                (None, None) => {}
            }
        }
    }
    found
}

fn ensure_same(printed: &str, promised: &str) -> Result<()> {
    ensure!(
        printed == promised,
        "the README shows this output:\n{promised}but the command printed:\n{printed}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_is_found_with_its_output() {
        let example = first_example("# X\n```console\n$ one\na\nb\n$ two\nc\n```\n")
            .expect("there is an example");
        assert_eq!(example.command, "one");
        assert_eq!(example.prints, "a\nb\n");
    }

    #[test]
    fn text_outside_a_code_block_is_no_command() {
        assert!(first_example("$ one\n```\nplain\n```\n").is_none());
    }
}
