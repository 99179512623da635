//! Keeps the README honest: its first command is run as it stands there.
//!
//! Comes in: `README.md`. Goes out: success when the command printed what the README says, as root
//! and as an ordinary user. Never here: a second copy of the command.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::rootless::User;
use crate::run::{is_root, output, target_dir, workspace_root};

/// How the README's first command begins: what stands before the words meant for `boxwood`.
const CARGO_RUN: &str = "cargo run --release -- ";

pub(super) fn check_first_command() -> Result<()> {
    let readme = fs::read_to_string(workspace_root().join("README.md"))?;
    let example = first_example(&readme).context("README.md has no `$ command` in a code block")?;
    println!("$ {}", example.command);
    let printed = output(
        Command::new("sh")
            .args(["-c", &example.command])
            .current_dir(workspace_root()),
    )?;
    ensure_same(&printed, &example.prints)?;

    if is_root() {
        let words = example
            .command
            .strip_prefix(CARGO_RUN)
            .with_context(|| format!("README.md's first command does not begin `{CARGO_RUN}`"))?;
        let user = User::ensure()?;
        let place = user.directory("readme")?;
        fs::copy(target_dir().join("release/boxwood"), place.join("boxwood"))?;
        println!("$ ./boxwood {words}   (as {})", super::rootless::USER);
        let printed = output(
            user.command("/bin/sh".as_ref())
                .args(["-c", &format!("./boxwood {words}")])
                .current_dir(&place),
        );
        fs::remove_dir_all(&place)?;
        ensure_same(&printed?, &example.prints)?;
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
        "the README promises\n{promised}and the command printed\n{printed}"
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
