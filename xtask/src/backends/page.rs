//! The tables themselves.

use anyhow::{Context, Result, ensure};
use boxwood_api::Mechanism;
use serde_json::Value;

use super::{BEGIN, Column, END};

type Columns = [(&'static Column, Value)];

/// The page with a new generated part.
pub(super) fn with_tables(page: &str, columns: &Columns) -> Result<String> {
    let marks = "docs/backends.md lacks the comments around its generated part";
    let (before, rest) = page.split_once(BEGIN).context(marks)?;
    let (_, after) = rest.split_once(END).context(marks)?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", tables(columns)?))
}

fn tables(columns: &Columns) -> Result<String> {
    let mechanisms = mechanisms(columns)?;
    let mut lines = vec![
        String::new(),
        "### Mechanisms in force".to_owned(),
        String::new(),
    ];
    lines.extend(head("mechanism", columns));
    lines.extend(mechanisms.iter().map(|mechanism| {
        row(&format!("`{mechanism}`"), columns, |matrix| {
            in_force(&matrix["mechanisms"][mechanism])
        })
    }));
    lines.extend(["", "### Missing mechanisms", ""].map(str::to_owned));
    lines.extend(absences(&mechanisms, columns));
    lines.extend(["", "### Features", ""].map(str::to_owned));
    lines.extend(head("", columns));
    for (name, key) in [
        ("terminals", "pty"),
        ("managed processes", "managed_processes"),
        ("file calls", "files"),
        ("mounts of the host's directories", "host_mounts"),
        ("mounts into a running box", "live_mounts"),
    ] {
        lines.push(row(name, columns, |matrix| {
            yes(matrix["capabilities"][key] == true)
        }));
    }
    lines.push(row("`user = \"root\"`", columns, |matrix| {
        yes(matrix["root_inside"] == true)
    }));
    lines.push(row("`network = \"on\"`", columns, |matrix| {
        matrix["network"].as_str().unwrap_or("unknown").to_owned()
    }));
    lines.extend(["", "### Missing features", ""].map(str::to_owned));
    lines.extend(not_offered(columns));
    lines.extend(["", ""].map(str::to_owned));
    Ok(lines.join("\n"))
}

fn head(first: &str, columns: &Columns) -> [String; 2] {
    let titles: Vec<&str> = columns.iter().map(|(column, _)| column.title).collect();
    [
        format!("| {first} | {} |", titles.join(" | ")),
        format!("|---|{}", "---|".repeat(titles.len())),
    ]
}

fn row(name: &str, columns: &Columns, cell: impl Fn(&Value) -> String) -> String {
    let cells: Vec<String> = columns.iter().map(|(_, matrix)| cell(matrix)).collect();
    format!("| {name} | {} |", cells.join(" | "))
}

fn yes(condition: bool) -> String {
    if condition { "yes" } else { "no" }.to_owned()
}

fn in_force(mechanism: &Value) -> String {
    let is = |key: &str| mechanism[key] == true;
    if !is("in_force") && is("with_read_only_root") {
        return "read-only root".to_owned();
    }
    yes(is("in_force"))
}

/// In the order of the API, when every column lists them all.
fn mechanisms(columns: &Columns) -> Result<Vec<&'static str>> {
    let all = Mechanism::ALL.map(Mechanism::as_str);
    for (column, matrix) in columns {
        let listed = matrix["mechanisms"].as_object();
        let same = listed.is_some_and(|listed| {
            listed.len() == all.len() && all.iter().all(|name| listed.contains_key(*name))
        });
        ensure!(
            same,
            "the result of {} is from another version: run `cargo xtask test --only {}`",
            column.title,
            column.tier
        );
    }
    Ok(all.to_vec())
}

/// The reasons for each mechanism, each with the backends that it applies to.
fn absences(mechanisms: &[&str], columns: &Columns) -> Vec<String> {
    let mut found = Vec::new();
    for mechanism in mechanisms {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (column, matrix) in columns {
            let Some(why) = matrix["mechanisms"][mechanism]["why"].as_str() else {
                continue;
            };
            match reasons.iter_mut().find(|(existing, _)| *existing == why) {
                Some((_, on)) => on.push(column.title),
                None => reasons.push((why, vec![column.title])),
            }
        }
        found.extend(reasons.iter().map(|(why, on)| {
            let on = on.join("; ");
            format!("- `{mechanism}` ({on}): {why}.")
        }));
    }
    found
}

fn not_offered(columns: &Columns) -> Vec<String> {
    let mut found = Vec::new();
    for (column, matrix) in columns {
        for entry in list(&matrix["not_offered"]) {
            let (Some(offer), Some(why)) = (entry["offer"].as_str(), entry["why"].as_str()) else {
                continue;
            };
            let title = column.title;
            found.push(format!("- {title}, {offer}: {why}."));
        }
    }
    if found.is_empty() {
        found.push("Nothing: every backend passes every case of both suites.".to_owned());
    }
    found
}

/// The lines that only one of two pages has: those of the old one first, each with its sign.
pub(super) fn difference(old: &str, new: &str) -> String {
    let only_in = |sign: char, one: &str, other: &str| -> Vec<String> {
        let missing = one
            .lines()
            .filter(|line| !other.lines().any(|existing| existing == *line));
        missing.map(|line| format!("{sign} {line}")).collect()
    };
    [only_in('-', old, new), only_in('+', new, old)]
        .concat()
        .join("\n")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::backends::COLUMNS;

    /// A column in which everything is in force but what is named, with its reason.
    fn seen(absent: &[(&str, &str)]) -> Value {
        let mechanisms: serde_json::Map<String, Value> = Mechanism::ALL
            .map(Mechanism::as_str)
            .into_iter()
            .map(|name| {
                let why = absent.iter().find(|(known, _)| *known == name);
                let why = why.map(|(_, why)| *why);
                let bounded = why.is_none() || name == "disk_quota";
                let entry = json!({ "in_force": why.is_none(), "with_read_only_root": bounded, "why": why });
                (name.to_owned(), entry)
            })
            .collect();
        json!({
            "mechanisms": mechanisms,
            "network": "private",
            "root_inside": false,
            "capabilities": { "pty": true },
            "not_offered": [],
        })
    }

    fn page(columns: &Columns) -> String {
        let old = format!("before\n{BEGIN}old\n{END}after\n");
        with_tables(&old, columns).expect("a page")
    }

    #[test]
    fn the_prose_stays_and_the_tables_are_made_anew() {
        let new = page(&[(&COLUMNS[0], seen(&[]))]);
        assert!(new.starts_with("before\n") && new.ends_with("after\n"));
        assert!(!new.contains("\nold\n"));
        assert_eq!(new, page(&[(&COLUMNS[0], seen(&[]))]));
    }

    #[test]
    fn an_absence_has_its_reason_and_the_backends_it_is_true_of() {
        let absent = [("landlock", "an old kernel"), ("disk_quota", "a layer")];
        let new = page(&[
            (&COLUMNS[0], seen(&absent)),
            (&COLUMNS[1], seen(&absent[..1])),
        ]);
        assert!(new.contains("| `landlock` | no | no |"), "{new}");
        assert!(
            new.contains("| `disk_quota` | read-only root | yes |"),
            "{new}"
        );
        assert!(
            new.contains("- `landlock` (native; native, rootless): an old kernel."),
            "{new}"
        );
    }

    #[test]
    fn what_is_not_offered_has_its_reason() {
        let mut column = seen(&[]);
        column["not_offered"] = json!([{ "offer": "images", "why": "no store" }]);
        let new = page(&[(&COLUMNS[0], column)]);
        assert!(new.contains("- native, images: no store."), "{new}");
    }

    #[test]
    fn what_differs_is_shown_line_by_line() {
        let shown = difference("same\nold\n", "same\nnew\n");
        assert_eq!(shown, "- old\n+ new");
    }

    #[test]
    fn a_column_of_another_version_is_refused() {
        let mut column = seen(&[]);
        column["mechanisms"]["new_one"] = json!({});
        let old = format!("{BEGIN}{END}");
        let refused = with_tables(&old, &[(&COLUMNS[0], column)]).unwrap_err();
        assert!(refused.to_string().contains("--only boxes"), "{refused}");
    }
}
