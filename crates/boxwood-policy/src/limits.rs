//! Resource limits of a box, from request, profile and the operator's maxima.
//!
//! Whether the host can enforce them is shown by the isolation label.

use std::fmt::Display;
use std::time::Duration;

use boxwood_api::{LockableField, SpecRequest};

use crate::profile::Maxima;
use crate::{Denial, Limits, Origin, Profile};

/// A limit and its source.
#[derive(Clone, Copy)]
struct Bound<'a, T> {
    most: T,
    by: &'a dyn Display,
}

struct OfProfile<'a>(&'a str);

impl Display for OfProfile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "profile `{}`", self.0)
    }
}

const HARD_LIMITS: &str = "the operator";

pub(crate) fn limits(
    request: &SpecRequest,
    profile: &Profile,
    hard: &Maxima,
    notices: &mut Vec<String>,
) -> Result<Limits, Denial> {
    use LockableField as Lock;
    let of_profile = OfProfile(&profile.name);
    let max = &profile.max;
    let judge = Judge {
        profile,
        of_profile: &of_profile,
    };
    Ok(Limits {
        cpus: judge.amount(
            "cpus",
            Lock::Cpus,
            request.cpus,
            profile.cpus,
            [max.cpus, hard.cpus],
            notices,
        )?,
        memory_mb: judge.amount(
            "memory_mb",
            Lock::MemoryMb,
            request.memory_mb,
            profile.memory_mb,
            [max.memory_mb, hard.memory_mb],
            notices,
        )?,
        pids: judge.amount(
            "pids_limit",
            Lock::PidsLimit,
            request.pids_limit,
            profile.pids_limit,
            [max.pids_limit, hard.pids_limit],
            notices,
        )?,
        tmp_mb: profile.tmp_mb,
        workspace_quota_mb: judge.quota(
            request.workspace_quota_mb,
            [max.workspace_quota_mb, hard.workspace_quota_mb],
            notices,
        )?,
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
    let of_profile = OfProfile(&profile.name);
    let (asked, most_of_profile) = match origin {
        Origin::Hosting => (request.timeout_sec.unwrap_or(profile.timeout_sec), None),
        Origin::Operator | Origin::Client | Origin::LangBotPlatform => {
            let asked = chosen(
                "timeout_sec",
                LockableField::TimeoutSec,
                request.timeout_sec,
                profile.timeout_sec,
                profile,
                notices,
            );
            (asked, profile.max.timeout_sec)
        }
    };
    let mut granted = asked;
    let mut by: &dyn Display = &of_profile;
    let bounds: [(Option<u64>, &dyn Display); 2] = [
        (most_of_profile, &of_profile),
        (hard.timeout_sec, &HARD_LIMITS),
    ];
    for (most, who) in bounds {
        if let Some(most) = most
            && granted > most
        {
            granted = most;
            by = who;
        }
    }
    if granted < asked && request.timeout_sec.is_some() {
        notices.push(format!(
            "timeout_sec was shortened from {asked} to {granted}, the most that {by} allows"
        ));
    }
    Duration::from_secs(granted)
}

/// The value of the request, or of the profile if the request has none or the field is locked.
pub(crate) fn chosen<T: PartialEq + Display>(
    field: &'static str,
    lock: LockableField,
    asked: Option<T>,
    default: T,
    profile: &Profile,
    notices: &mut Vec<String>,
) -> T {
    match asked {
        Some(asked) if !profile.is_locked(lock) => asked,
        Some(asked) if asked != default => {
            notices.push(format!(
                "{field} is locked to {default} by profile `{}`; {asked} was asked for",
                profile.name
            ));
            default
        }
        Some(_) | None => default,
    }
}

struct Judge<'a> {
    profile: &'a Profile,
    of_profile: &'a dyn Display,
}

impl Judge<'_> {
    fn amount<T: PartialOrd + Copy + Display>(
        &self,
        field: &'static str,
        lock: LockableField,
        asked: Option<T>,
        default: T,
        [profile_most, hard_most]: [Option<T>; 2],
        notices: &mut Vec<String>,
    ) -> Result<T, Denial> {
        let value = chosen(field, lock, asked, default, self.profile, notices);
        let by_caller = asked.is_some() && !self.profile.is_locked(lock);
        let bounds = [
            profile_most.map(|most| Bound {
                most,
                by: self.of_profile,
            }),
            hard_most.map(|most| Bound {
                most,
                by: &HARD_LIMITS,
            }),
        ];
        let mut granted = value;
        for bound in bounds.into_iter().flatten() {
            if granted <= bound.most {
                continue;
            }
            if by_caller {
                return Err(Denial::TooMuch {
                    field,
                    asked: value.to_string(),
                    allowed: bound.most.to_string(),
                    by: bound.by.to_string(),
                });
            }
            // The caller requested nothing that could be denied. The operator's two values
            // conflict, and the smaller one applies.
            granted = bound.most;
        }
        Ok(granted)
    }

    /// Zero means no particular limit, so it becomes the maximum. Denying it would deny all clients
    /// that send the default of the wire format.
    fn quota(
        &self,
        asked: Option<u64>,
        most: [Option<u64>; 2],
        notices: &mut Vec<String>,
    ) -> Result<u64, Denial> {
        let quota = self.amount(
            "workspace_quota_mb",
            LockableField::WorkspaceQuotaMb,
            asked,
            self.profile.workspace_quota_mb,
            most,
            notices,
        )?;
        let smallest = most.into_iter().flatten().min();
        Ok(match smallest {
            Some(most) if quota == 0 => most,
            Some(_) | None => quota,
        })
    }
}
