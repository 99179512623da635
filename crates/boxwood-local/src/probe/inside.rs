//! Starts a real box and checks `/proc/self/status` of a command in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use boxwood_api::{SessionId, SpecRequest, with_causes};
use boxwood_backend::{Finding, Outcome, Sandbox, SpawnRequest, StartError, Stdio};
use boxwood_policy::{AdmittedSpec, Facts, Origin, PolicyRules, admit};
use tokio::io::AsyncReadExt;

use crate::label::{RESTRICTIONS, reported};
use crate::sandbox::LocalBox;

/// A status file is about two kilobytes long.
const MAX_STATUS_BYTES: u64 = 64 * 1024;

/// `start` starts a box of the probed backend.
pub async fn probe_box<F>(start: impl FnOnce(AdmittedSpec) -> F) -> Vec<Finding>
where
    F: Future<Output = Result<Arc<LocalBox>, StartError>>,
{
    let status = read_status(start).await;
    let checks = [
        ("system calls", "dangerous system calls are refused"),
        ("privileges", "a setuid file gives a command no privileges"),
        ("capabilities", "a command has no capabilities on the host"),
    ];
    let check = |((name, matters), (mechanism, field, expected))| {
        let value = status.as_ref().map(|status| reported(status, field));
        let outcome = match value {
            Ok(value) if value == expected => Outcome::works("verified inside a box"),
            Ok(value) => Outcome::fatal(
                format!("the kernel reports `{field} {value}` for a command in a box"),
                "this is a bug in Boxwood: please report it",
            ),
            Err(why) => Outcome::fatal(why.clone(), "see the log"),
        };
        Finding {
            name,
            mechanism: Some(mechanism),
            outcome,
            matters,
        }
    };
    checks.into_iter().zip(RESTRICTIONS).map(check).collect()
}

async fn read_status<F>(start: impl FnOnce(AdmittedSpec) -> F) -> Result<String, String>
where
    F: Future<Output = Result<Arc<LocalBox>, StartError>>,
{
    let request = SpecRequest {
        session_id: SessionId::new("doctor").ok(),
        ..SpecRequest::default()
    };
    let rules = PolicyRules::default();
    let admission = admit(&request, Origin::Operator, &Facts::default(), &rules)
        .map_err(|denial| denial.to_string())?;
    let sandbox = start(admission.spec)
        .await
        .map_err(|error| with_causes(&error))?;
    let status = run_cat(sandbox.as_ref()).await;
    sandbox.stop().await.map_err(|error| with_causes(&error))?;
    status
}

async fn run_cat(sandbox: &dyn Sandbox) -> Result<String, String> {
    let request = SpawnRequest {
        argv: vec!["cat".to_owned(), "/proc/self/status".to_owned()],
        env: BTreeMap::new(),
        cwd: "/".to_owned(),
        stdio: Stdio::Output,
        keep: None,
    };
    let process = sandbox
        .spawn(request)
        .await
        .map_err(|error| with_causes(&error))?;
    let mut text = String::new();
    process
        .stdout
        .take(MAX_STATUS_BYTES)
        .read_to_string(&mut text)
        .await
        .map_err(|error| error.to_string())?;
    Ok(text)
}
