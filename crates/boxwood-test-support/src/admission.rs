//! Requests for tests, admitted by the real policy.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use boxwood_api::{FieldError, SessionId, SpecRequest};
use boxwood_policy::{Admission, Denial, Facts, OpenedPath, Origin, PolicyRules, admit};

#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    #[error("the test's session id is invalid")]
    Id(#[from] FieldError),
    #[error("the test's directory `{path}` could not be opened")]
    Open {
        path: String,
        source: std::io::Error,
    },
    #[error("policy refused the test's request")]
    Denied(#[from] Denial),
}

/// Admits `cmd` in `session`, with whatever `change` does to the request first.
pub fn admission(
    session: &str,
    cmd: &str,
    change: impl FnOnce(&mut SpecRequest),
) -> Result<Admission, AdmissionError> {
    admission_for(Origin::Operator, &[], session, cmd, change)
}

/// The same with the policy rules of the test.
pub fn admission_under(
    rules: &PolicyRules,
    session: &str,
    cmd: &str,
    change: impl FnOnce(&mut SpecRequest),
) -> Result<Admission, AdmissionError> {
    judged(rules, Origin::Operator, &[], session, cmd, change)
}

/// Like [`admission`], with an origin. `skills` are directories; each skill has the name of its directory and is
/// requested.
pub fn admission_for(
    origin: Origin,
    skills: &[&Path],
    session: &str,
    cmd: &str,
    change: impl FnOnce(&mut SpecRequest),
) -> Result<Admission, AdmissionError> {
    judged(
        &PolicyRules::default(),
        origin,
        skills,
        session,
        cmd,
        change,
    )
}

fn judged(
    rules: &PolicyRules,
    origin: Origin,
    skills: &[&Path],
    session: &str,
    cmd: &str,
    change: impl FnOnce(&mut SpecRequest),
) -> Result<Admission, AdmissionError> {
    let mut request = SpecRequest {
        session_id: Some(SessionId::new(session)?),
        cmd: cmd.to_owned(),
        ..SpecRequest::default()
    };
    change(&mut request);
    let skills = skills
        .iter()
        .map(|directory| open_skill(directory))
        .collect::<Result<Vec<_>, _>>()?;
    request.skills = skills.iter().map(|skill| skill.given.clone()).collect();
    let facts = Facts {
        host_path: request.host_path.as_deref().map(open).transpose()?,
        extra_mounts: request
            .extra_mounts
            .iter()
            .map(|mount| open(&mount.host_path))
            .collect::<Result<_, _>>()?,
        skills,
        ..Facts::default()
    };
    Ok(admit(&request, origin, &facts, rules)?)
}

fn open_skill(directory: &Path) -> Result<OpenedPath, AdmissionError> {
    let name = directory.file_name().unwrap_or_default();
    Ok(OpenedPath {
        given: name.to_string_lossy().into_owned(),
        ..open(&directory.display().to_string())?
    })
}

fn open(path: &str) -> Result<OpenedPath, AdmissionError> {
    let failed = |source| AdmissionError::Open {
        path: path.to_owned(),
        source,
    };
    let real_path = Path::new(path).canonicalize().map_err(failed)?;
    let file = File::open(&real_path).map_err(failed)?;
    let is_dir = file.metadata().map_err(failed)?.is_dir();
    Ok(OpenedPath {
        handle: Arc::new(OwnedFd::from(file)),
        given: path.to_owned(),
        real_path,
        is_dir,
    })
}
