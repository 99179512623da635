//! Requests and facts, as short as a test wants them.

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_api::{MountMode, MountSpec, SessionId, SpecRequest};
use boxwood_policy::{Admission, Denial, Facts, OpenedPath, Origin, PolicyRules, admit};

pub(crate) fn request() -> SpecRequest {
    SpecRequest {
        session_id: Some(SessionId::new("test").expect("an id")),
        ..SpecRequest::default()
    }
}

pub(crate) fn judge(request: &SpecRequest) -> Result<Admission, Denial> {
    admit(
        request,
        Origin::Client,
        &Facts::default(),
        &PolicyRules::default(),
    )
}

/// A path as if it had been opened and the kernel called it `real`. What the descriptor is does
/// not matter to policy.
pub(crate) fn opened(given: &str, real: &str) -> OpenedPath {
    let handle = std::fs::File::open("/dev/null").expect("a descriptor");
    OpenedPath {
        handle: Arc::new(handle.into()),
        given: given.to_owned(),
        real_path: PathBuf::from(real),
        is_dir: true,
    }
}

/// A request whose workspace is `given`, which the kernel calls `real`.
pub(crate) fn workspace(given: &str, real: &str) -> (SpecRequest, Facts) {
    let request = SpecRequest {
        host_path: Some(given.to_owned()),
        ..request()
    };
    let facts = Facts {
        host_path: Some(opened(given, real)),
        ..Facts::default()
    };
    (request, facts)
}

/// A request with one extra mount.
pub(crate) fn extra(
    given: &str,
    real: &str,
    target: &str,
    mode: MountMode,
) -> (SpecRequest, Facts) {
    let request = SpecRequest {
        extra_mounts: vec![mount(given, target, mode)],
        ..request()
    };
    let facts = Facts {
        extra_mounts: match mode {
            MountMode::None => Vec::new(),
            MountMode::Ro | MountMode::Rw => vec![opened(given, real)],
        },
        ..Facts::default()
    };
    (request, facts)
}

pub(crate) fn mount(given: &str, target: &str, mode: MountMode) -> MountSpec {
    MountSpec {
        host_path: given.to_owned(),
        mount_path: target.to_owned(),
        mode,
    }
}
