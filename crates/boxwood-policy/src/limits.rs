//! Resource limits of a box and the timeout of a command, from request, profile and the operator's maxima.
//!
//! Whether the host can enforce them is shown by the isolation label.

use std::fmt::Display;
use std::time::Duration;

use boxwood_api::LockableField as Lock;

use crate::admit::Decision;
use crate::{Denial, Limits, Origin};

impl Decision<'_> {
    pub(crate) fn limits(&mut self) -> Result<Limits, Denial> {
        let (request, profile) = (self.request, self.profile);
        let (max, operator_max) = (&profile.max, &self.rules.maxima);
        let cpus = [max.cpus, operator_max.cpus];
        let memory = [max.memory_mb, operator_max.memory_mb];
        let pids = [max.pids_limit, operator_max.pids_limit];
        let quota = [max.workspace_quota_mb, operator_max.workspace_quota_mb];
        Ok(Limits {
            cpus: self.amount(Lock::Cpus, request.cpus, profile.cpus, cpus)?,
            memory_mb: self.amount(Lock::MemoryMb, request.memory_mb, profile.memory_mb, memory)?,
            pids: self.amount(
                Lock::PidsLimit,
                request.pids_limit,
                profile.pids_limit,
                pids,
            )?,
            tmp_mb: profile.tmp_mb,
            workspace_quota_mb: match self.amount(
                Lock::WorkspaceQuotaMb,
                request.workspace_quota_mb,
                profile.workspace_quota_mb,
                quota,
            )? {
                // Zero means no particular limit, so it becomes the maximum. Denying it would deny
                // all clients that send the default of the wire format.
                0 => quota.into_iter().flatten().min().unwrap_or(0),
                quota => quota,
            },
        })
    }

    /// A timeout above the limit is reduced rather than denied: callers often send generous values,
    /// and the command can still run.
    ///
    /// The limits of the profile do not apply to hosting: its installer is limited by the start
    /// timeout of the server, and the server itself has no timeout.
    pub(crate) fn timeout(&mut self) -> Duration {
        let (named, default) = (self.request.timeout_sec, self.profile.timeout_sec);
        let (requested, profile_max) = match self.origin {
            Origin::Hosting => (named.unwrap_or(default), None),
            Origin::Operator | Origin::Client | Origin::LangBotPlatform => {
                let requested = self.chosen(Lock::TimeoutSec, named, default);
                (requested, self.profile.max.timeout_sec)
            }
        };
        let mut granted = requested;
        let mut by = String::new();
        for (max, source) in self.bounds([profile_max, self.rules.maxima.timeout_sec]) {
            if granted > max {
                (granted, by) = (max, source);
            }
        }
        if granted < requested && named.is_some() {
            self.notices.push(format!(
                "timeout_sec was shortened from {requested} to {granted}, the most that {by} allows"
            ));
        }
        Duration::from_secs(granted)
    }

    /// The value of the request, or of the profile if the request has none or the field is locked.
    pub(crate) fn chosen<T: PartialEq + Display>(
        &mut self,
        lock: Lock,
        requested: Option<T>,
        default: T,
    ) -> T {
        match requested {
            Some(requested) if !self.profile.is_locked(lock) => requested,
            Some(requested) if requested != default => {
                let field: &str = lock.into();
                self.notices.push(format!(
                    "{field} is locked to {default} by profile `{}`; {requested} was asked for",
                    self.profile.name
                ));
                default
            }
            Some(_) | None => default,
        }
    }

    /// The maxima of profile and operator, each with its source.
    fn bounds<T>(&self, max: [Option<T>; 2]) -> impl Iterator<Item = (T, String)> + use<T> {
        let sources = [
            format!("profile `{}`", self.profile.name),
            "the operator".to_owned(),
        ];
        let bounds = max.into_iter().zip(sources);
        bounds.filter_map(|(max, source)| Some((max?, source)))
    }

    fn amount<T: PartialOrd + Copy + Display>(
        &mut self,
        lock: Lock,
        requested: Option<T>,
        default: T,
        max: [Option<T>; 2],
    ) -> Result<T, Denial> {
        let mut granted = self.chosen(lock, requested, default);
        for (max, by) in self.bounds(max) {
            if granted <= max {
                continue;
            }
            if requested.is_some() && !self.profile.is_locked(lock) {
                return Err(Denial::TooMuch {
                    field: lock.into(),
                    requested: granted.to_string(),
                    allowed: max.to_string(),
                    by,
                });
            }
            // The caller requested nothing that could be denied. The operator's two values conflict,
            // and the smaller one applies.
            granted = max;
        }
        Ok(granted)
    }
}
