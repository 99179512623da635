//! `boxwood skill validate`: checks a skill against the Agent Skills rules. A path is checked without a daemon.

use std::path::Path;

use boxwood_api::{SkillWarning, with_causes};
use boxwood_client::Client;
use boxwood_skills::{Limits, SkillError, SkillStore, ZipRequest};
use serde::Serialize;

use super::refused;
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::output::Output;
use crate::output::printable::printable;

const EXAMPLES: &str = "\
Examples:
  boxwood skill validate ./pdf                  Check a directory; no daemon needed
  boxwood skill validate pdf.zip                Check all skills of an archive
  boxwood skill validate pdf                    Check a skill of the daemon's store
  boxwood skill validate --strict ./pdf         Fail on warnings too, for CI

Exit codes: 0 the skill can be used; 1 it cannot, or with --strict it has warnings.";

/// Check a skill against the Agent Skills rules
///
/// Skills with errors cannot be added to the store. Warnings are other violations of the rules, such as in
/// the name, the description or unknown fields. A path (`./pdf`, `pdf.zip`, `/srv/skills/pdf`) is checked on
/// this machine; any other word is the name of a skill in the store.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Directory, zip archive, or name of a skill
    #[arg(value_name = "PATH|NAME")]
    target: String,

    /// Fail if there are warnings
    #[arg(long)]
    strict: bool,
}

impl Args {
    /// Names contain no slash and no dot.
    pub(super) fn is_local(&self) -> bool {
        self.target.contains(['/', '.', '\\']) || self.target.is_empty()
    }
}

/// The result for one skill.
#[derive(Debug, Serialize)]
struct Verdict {
    skill: String,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    warnings: Vec<SkillWarning>,
}

impl Verdict {
    fn new(skill: String, checked: Result<Vec<SkillWarning>, SkillError>) -> Self {
        let (warnings, error) = match checked {
            Ok(warnings) => (warnings, None),
            Err(error) => (Vec::new(), Some(with_causes(&error))),
        };
        Self {
            skill,
            valid: error.is_none(),
            error,
            warnings,
        }
    }
}

/// Checks a skill of the store.
pub(super) async fn remote(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let detail = client.skill(&args.target).await;
    let detail = detail.map_err(|error| {
        let failure = refused(error);
        if Path::new(&args.target).exists() {
            failure.hint(format!(
                "to check the local path, write `./{}`",
                args.target
            ))
        } else {
            failure
        }
    })?;
    let verdict = Verdict::new(detail.skill.name, Ok(detail.skill.warnings));
    print_all(args, &[verdict], output)
}

/// Checks a path with the code of the store, so that the results are the same.
pub(super) fn local(args: &Args, output: Output) -> Outcome<u8> {
    let path = Path::new(&args.target);
    let unreadable = |error| Failure::unreadable(path, error);
    // Only its parsers are used; the directory is not opened.
    let store = SkillStore::new("/nonexistent".into(), Limits::default());
    let verdicts = if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        // The name is compared with that of the directory, and `.` has none.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        vec![Verdict::new(args.target.clone(), store.validate(&real))]
    } else {
        archive(&store, path, &std::fs::read(path).map_err(unreadable)?)
    };
    print_all(args, &verdicts, output)
}

fn archive(store: &SkillStore, path: &Path, bytes: &[u8]) -> Vec<Verdict> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let request = ZipRequest {
        filename: format!("{stem}.zip"),
        target_suffix: String::new(),
        ..ZipRequest::default()
    };
    let archive_path = path.display().to_string();
    match store.preview_zip(bytes, &request) {
        Err(error) => vec![Verdict::new(archive_path, Err(error))],
        Ok(found) => found
            .iter()
            .map(|planned| {
                let skill = match planned.source_path.as_str() {
                    "" => archive_path.clone(),
                    source_path => format!("{archive_path}:{source_path}"),
                };
                Verdict::new(skill, Ok(planned.skill.warnings.clone()))
            })
            .collect(),
    }
}

fn print_all(args: &Args, verdicts: &[Verdict], output: Output) -> Outcome<u8> {
    if output.is_json() {
        Output::json(&verdicts)?;
    } else {
        for verdict in verdicts {
            print(verdict)?;
        }
    }
    let fails = |verdict: &Verdict| !verdict.valid || (args.strict && !verdict.warnings.is_empty());
    Ok(if verdicts.iter().any(fails) {
        EXIT_ERROR
    } else {
        0
    })
}

fn print(verdict: &Verdict) -> Outcome<()> {
    let skill = printable(&verdict.skill);
    if let Some(error) = &verdict.error {
        Output::line(&format!("{skill}: error: {}", printable(error)))?;
    }
    for warning in &verdict.warnings {
        let message = printable(&warning.message);
        Output::line(&format!("{skill}: warning: {message}"))?;
    }
    if verdict.valid && verdict.warnings.is_empty() {
        Output::line(&format!("{skill}: ok"))?;
    }
    Ok(())
}
