//! `boxwood skill validate`: checks a skill against the Agent Skills rules. A path is checked without a daemon.

use std::path::Path;

use boxwood_api::SkillWarning;
use boxwood_client::Client;
use serde::Serialize;

use super::refused;
use crate::failure::{EXIT_ERROR, Outcome};
use crate::output::Output;
use crate::printable::printable;

const EXAMPLES: &str = "\
Examples:
  boxwood skill validate ./pdf                  A directory; no daemon needed
  boxwood skill validate pdf.zip                An archive, with everything in it
  boxwood skill validate pdf                    A skill of the daemon's store
  boxwood skill validate --strict ./pdf         For CI

Exit codes: 0 it can be used; 1 it cannot, or with --strict it has warnings.";

/// Check a skill against the Agent Skills rules
///
/// Errors are what keeps a skill out of the store. Warnings are departures from the rules that other
/// programs may not like: the name, the description and its length, unknown fields. What is a path
/// (`./pdf`, `pdf.zip`, `/srv/skills/pdf`) is read here; any other word is a skill in the store.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Directory, zip archive, or name of a skill
    #[arg(value_name = "PATH|NAME")]
    what: String,

    /// Warnings are errors
    #[arg(long)]
    strict: bool,
}

impl Args {
    /// A name has no slash and no dot in it.
    pub(super) fn is_local(&self) -> bool {
        self.what.contains(['/', '.', '\\']) || self.what.is_empty()
    }
}

/// What was found about one skill.
#[derive(Debug, Serialize)]
struct Verdict {
    skill: String,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    warnings: Vec<SkillWarning>,
}

pub(super) async fn there(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let detail = client.skill(&args.what).await;
    let detail = detail.map_err(|error| {
        let failure = refused(error);
        if Path::new(&args.what).exists() {
            failure.hint(format!("to check the one here, write `./{}`", args.what))
        } else {
            failure
        }
    })?;
    let verdict = Verdict {
        skill: detail.skill.name,
        valid: true,
        error: None,
        warnings: detail.skill.warnings,
    };
    tell(args, &[verdict], output)
}

#[cfg(target_os = "linux")]
pub(super) fn here(args: &Args, output: Output) -> Outcome<u8> {
    tell(args, &local::verdicts(Path::new(&args.what))?, output)
}

/// The store's eyes are made for Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn here(_: &Args, _: Output) -> Outcome<u8> {
    Err(crate::failure::Failure::usage(
        "files can be checked on Linux only",
    ))
}

fn tell(args: &Args, verdicts: &[Verdict], output: Output) -> Outcome<u8> {
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
        Output::line(&format!(
            "{skill}: warning: {}",
            printable(&warning.message)
        ))?;
    }
    if verdict.valid && verdict.warnings.is_empty() {
        Output::line(&format!("{skill}: ok"))?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod local {
    //! Uses the checks of the skill store.

    use std::path::Path;

    use boxwood_skills::{Limits, SkillStore, ZipRequest};

    use super::Verdict;
    use crate::failure::{Failure, Outcome};

    pub(super) fn verdicts(path: &Path) -> Outcome<Vec<Verdict>> {
        let unreadable =
            |error| Failure::local(format!("`{}` could not be read", path.display()), error);
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        // A store of which only the reading half is used; nothing is looked for in its place.
        let store = SkillStore::new("/nonexistent".into(), Limits::default());
        if metadata.is_dir() {
            return Ok(vec![directory(&store, path)]);
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        Ok(archive(&store, path, &bytes))
    }

    fn directory(store: &SkillStore, path: &Path) -> Verdict {
        let skill = path.display().to_string();
        // Where the rules compare the name with the directory's, `.` has none.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        match store.validate(&real) {
            Ok(warnings) => Verdict {
                skill,
                valid: true,
                error: None,
                warnings,
            },
            Err(error) => broken(skill, &error),
        }
    }

    fn archive(store: &SkillStore, path: &Path, bytes: &[u8]) -> Vec<Verdict> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let request = ZipRequest {
            filename: format!("{stem}.zip"),
            target_suffix: String::new(),
            ..ZipRequest::default()
        };
        let whole = path.display().to_string();
        match store.preview_zip(bytes, &request) {
            Ok(found) => found
                .iter()
                .map(|planned| Verdict {
                    skill: match planned.source_path.as_str() {
                        "" => whole.clone(),
                        inside => format!("{whole}:{inside}"),
                    },
                    valid: true,
                    error: None,
                    warnings: planned.skill.warnings.clone(),
                })
                .collect(),
            Err(error) => vec![broken(whole, &error)],
        }
    }

    fn broken(skill: String, error: &boxwood_skills::SkillError) -> Verdict {
        let mut text = error.to_string();
        let mut next = std::error::Error::source(error);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        Verdict {
            skill,
            valid: false,
            error: Some(text),
            warnings: Vec::new(),
        }
    }
}
