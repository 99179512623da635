//! Resource limits of a box, from request, profile and the operator's maxima.
//!
//! Whether the host can enforce them is shown by the isolation label.

use std::fmt::Display;
use std::time::Duration;

use boxwood_api::{LockableField as Lock, SpecRequest};

use crate::profile::Maxima;
use crate::{Denial, Limits, Origin, Profile};

pub(crate) fn limits(
    request: &SpecRequest,
    profile: &Profile,
    hard: &Maxima,
    notices: &mut Vec<String>,
) -> Result<Limits, Denial> {
    let max = &profile.max;
    let cpus = [max.cpus, hard.cpus];
    let memory = [max.memory_mb, hard.memory_mb];
    let pids = [max.pids_limit, hard.pids_limit];
    let quota = [max.workspace_quota_mb, hard.workspace_quota_mb];
    Ok(Limits {
        cpus: amount(
            Lock::Cpus,
            request.cpus,
            profile.cpus,
            cpus,
            profile,
            notices,
        )?,
        memory_mb: amount(
            Lock::MemoryMb,
            request.memory_mb,
            profile.memory_mb,
            memory,
            profile,
            notices,
        )?,
        pids: amount(
            Lock::PidsLimit,
            request.pids_limit,
            profile.pids_limit,
            pids,
            profile,
            notices,
        )?,
        tmp_mb: profile.tmp_mb,
        workspace_quota_mb: match amount(
            Lock::WorkspaceQuotaMb,
            request.workspace_quota_mb,
            profile.workspace_quota_mb,
            quota,
            profile,
            notices,
        )? {
            // Zero means no particular limit, so it becomes the maximum. Denying it would deny all
            // clients that send the default of the wire format.
            0 => quota.into_iter().flatten().min().unwrap_or(0),
            quota => quota,
        },
    })
}

/// A timeout above the limit is reduced rather than denied: callers often send generous values, and
/// the command can still run.
///
/// The limits of the profile do not apply to hosting: its installer is limited by the start timeout
/// of the server, and the server itself has no timeout.
pub(crate) fn timeout(
    request: &SpecRequest,
    origin: Origin,
    profile: &Profile,
    hard: &Maxima,
    notices: &mut Vec<String>,
) -> Duration {
    let (named, default) = (request.timeout_sec, profile.timeout_sec);
    let (asked, most_of_profile) = match origin {
        Origin::Hosting => (named.unwrap_or(default), None),
        Origin::Operator | Origin::Client | Origin::LangBotPlatform => {
            let asked = chosen(Lock::TimeoutSec, named, default, profile, notices);
            (asked, profile.max.timeout_sec)
        }
    };
    let mut granted = asked;
    let mut by = String::new();
    for (most, source) in bounds([most_of_profile, hard.timeout_sec], profile) {
        if granted > most {
            (granted, by) = (most, source);
        }
    }
    if granted < asked && named.is_some() {
        notices.push(format!(
            "timeout_sec was shortened from {asked} to {granted}, the most that {by} allows"
        ));
    }
    Duration::from_secs(granted)
}

/// The value of the request, or of the profile if the request has none or the field is locked.
pub(crate) fn chosen<T: PartialEq + Display>(
    lock: Lock,
    asked: Option<T>,
    default: T,
    profile: &Profile,
    notices: &mut Vec<String>,
) -> T {
    match asked {
        Some(asked) if !profile.is_locked(lock) => asked,
        Some(asked) if asked != default => {
            let field: &str = lock.into();
            notices.push(format!(
                "{field} is locked to {default} by profile `{}`; {asked} was asked for",
                profile.name
            ));
            default
        }
        Some(_) | None => default,
    }
}

/// The maxima of profile and operator, each with its source.
fn bounds<T>(most: [Option<T>; 2], profile: &Profile) -> impl Iterator<Item = (T, String)> {
    let sources = [
        format!("profile `{}`", profile.name),
        "the operator".to_owned(),
    ];
    let bounds = most.into_iter().zip(sources);
    bounds.filter_map(|(most, source)| Some((most?, source)))
}

fn amount<T: PartialOrd + Copy + Display>(
    lock: Lock,
    asked: Option<T>,
    default: T,
    most: [Option<T>; 2],
    profile: &Profile,
    notices: &mut Vec<String>,
) -> Result<T, Denial> {
    let mut granted = chosen(lock, asked, default, profile, notices);
    for (most, by) in bounds(most, profile) {
        if granted <= most {
            continue;
        }
        if asked.is_some() && !profile.is_locked(lock) {
            return Err(Denial::TooMuch {
                field: lock.into(),
                asked: granted.to_string(),
                allowed: most.to_string(),
                by,
            });
        }
        // The caller requested nothing that could be denied. The operator's two values conflict, and
        // the smaller one applies.
        granted = most;
    }
    Ok(granted)
}
