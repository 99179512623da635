//! `cargo xtask lines`: counts product, test and comment lines per crate.
//!
//! A line scanner, not a parser: a line is blank, a comment or code, and code inside a `#[cfg(test)]` item or in a test
//! file is test code. Indefinite pronouns are counted too: `docs/style.md` asks for a component or a caller instead.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::run::{known_files, workspace_root};

/// Crates that contain test code only.
const TEST_CRATES: [&str; 2] = ["boxwood-suites", "boxwood-test-support"];

const PRONOUNS: [&str; 5] = ["whoever", "nobody", "somebody", "everybody", "anybody"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Count {
    product: usize,
    test: usize,
    comment: usize,
    pronouns: usize,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.product += other.product;
        self.test += other.test;
        self.comment += other.comment;
        self.pronouns += other.pronouns;
    }
}

/// `total` is the sum over `crates`; xtask is not part of it.
#[derive(Debug, Default, Serialize)]
struct Report {
    crates: BTreeMap<String, Count>,
    total: Count,
    xtask: Count,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::default();
    for path in known_files()? {
        if Path::new(&path).extension() != Some(OsStr::new("rs")) {
            continue;
        }
        let Ok(text) = fs::read_to_string(workspace_root().join(&path)) else {
            // Deleted, but not committed yet.
            continue;
        };
        if path.starts_with("xtask/") {
            report.xtask += count(&text, is_test_file(&path));
        } else if let Some((name, _)) = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once('/'))
        {
            let is_test = is_test_file(&path) || TEST_CRATES.contains(&name);
            let counted = count(&text, is_test);
            *report.crates.entry(name.to_owned()).or_default() += counted;
            report.total += counted;
        }
    }
    if args.json {
        let text = serde_json::to_string_pretty(&report).context("writing JSON")?;
        println!("{text}");
        return Ok(());
    }
    println!(
        "{:28} {:>8} {:>8} {:>8} {:>9}",
        "", "product", "test", "comment", "pronouns"
    );
    let crates = report
        .crates
        .iter()
        .map(|(name, count)| (name.as_str(), count));
    for (name, count) in crates.chain([("total", &report.total), ("xtask", &report.xtask)]) {
        println!(
            "{name:28} {:>8} {:>8} {:>8} {:>9}",
            count.product, count.test, count.comment, count.pronouns
        );
    }
    Ok(())
}

/// Files in a folder `tests`, files named `tests.rs` or `…_tests.rs`, examples and benchmarks.
fn is_test_file(path: &str) -> bool {
    path.ends_with("_tests.rs")
        || path
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs" | "examples" | "benches"))
}

fn count(text: &str, is_test_file: bool) -> Count {
    let mut count = Count::default();
    let mut in_block_comment = false;
    let mut test_item: Option<Item> = None;
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        count.pronouns += pronouns(line);
        if in_block_comment || line.starts_with("//") || line.starts_with("/*") {
            count.comment += 1;
            in_block_comment = (in_block_comment || line.starts_with("/*")) && !line.contains("*/");
            continue;
        }
        if test_item.is_none() && line.starts_with("#[cfg(test)]") {
            test_item = Some(Item::default());
        }
        if is_test_file || test_item.is_some() {
            count.test += 1;
        } else {
            count.product += 1;
        }
        if let Some(item) = &mut test_item
            && item.ends_with(line)
        {
            test_item = None;
        }
    }
    count
}

/// The user name `nobody` is in quotes or backticks and does not count.
fn pronouns(line: &str) -> usize {
    line.split(|character: char| !character.is_alphanumeric() && !"`\"'".contains(character))
        .filter(|word| PRONOUNS.contains(&word.to_ascii_lowercase().as_str()))
        .count()
}

/// The item behind a `#[cfg(test)]` attribute, of which the end is searched for.
#[derive(Default)]
struct Item {
    depth: i64,
    has_body: bool,
}

impl Item {
    /// Returns true on the last line: a semicolon before any brace, or the brace that closes the body.
    /// Braces in strings count too, which is wrong only if they are unbalanced.
    fn ends_with(&mut self, line: &str) -> bool {
        for character in line.chars() {
            match character {
                '{' => {
                    self.depth += 1;
                    self.has_body = true;
                }
                '}' => self.depth -= 1,
                _ => {}
            }
        }
        if self.has_body {
            self.depth <= 0
        } else {
            line.ends_with(';')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, is_test_file: bool, [product, test, comment]: [usize; 3]) {
        let expected = Count {
            product,
            test,
            comment,
            pronouns: 0,
        };
        assert_eq!(count(text, is_test_file), expected, "{text}");
    }

    #[test]
    fn blank_lines_and_comments_are_not_code() {
        check("//! Docs.\n\nfn f() {}\n  // why\n", false, [1, 0, 2]);
        check("/* a\n b\n*/\nfn f() {} // why\n", false, [1, 0, 3]);
    }

    #[test]
    fn test_items_end_with_their_body() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn t() {\n    }\n}\nfn g() {}\n";
        check(text, false, [2, 5, 0]);
        check("#[cfg(test)]\nmod tests;\nfn f() {}\n", false, [1, 2, 0]);
    }

    #[test]
    fn pronouns_are_counted_in_comments_and_names() {
        let pronoun = concat!("no", "body");
        assert_eq!(
            pronouns(&format!("fn {pronoun}_reads() {{}} // {pronoun}.")),
            2
        );
        assert_eq!(pronouns("the user `nobody` or \"nobody\""), 0);
    }

    #[test]
    fn test_files_have_no_product_lines() {
        check("fn f() {}\n// why\n", true, [0, 1, 1]);
        let paths = [
            "crates/x/tests/it/main.rs",
            "crates/x/src/y/tests.rs",
            "crates/x/src/y/name_tests.rs",
        ];
        for path in paths {
            assert!(is_test_file(path), "{path}");
        }
        assert!(!is_test_file("crates/x/src/latest.rs"));
    }
}
