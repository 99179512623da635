//! Resource limits of a box, from request, profile and the operator's maxima.
//!
//! Whether the host can enforce them is shown by the isolation label.

use std::fmt::Display;
use std::time::Duration;

use boxwood_api::LockableField as Lock;

use crate::admit::Decision;
use crate::{Denial, Limits, Origin};

impl Decision<'_> {
    pub(crate) fn limits(&mut self) -> Result<Limits, Denial> {
        let (asked, usual) = (self.request, self.profile);
        let (max, hard) = (&usual.max, &self.rules.maxima);
        let cpus = [max.cpus, hard.cpus];
        let memory = [max.memory_mb, hard.memory_mb];
        let pids = [max.pids_limit, hard.pids_limit];
        let quota = [max.workspace_quota_mb, hard.workspace_quota_mb];
        Ok(Limits {
            cpus: self.amount(Lock::Cpus, asked.cpus, usual.cpus, cpus)?,
            memory_mb: self.amount(Lock::MemoryMb, asked.memory_mb, usual.memory_mb, memory)?,
            pids: self.amount(Lock::PidsLimit, asked.pids_limit, usual.pids_limit, pids)?,
            tmp_mb: usual.tmp_mb,
            workspace_quota_mb: match self.amount(
                Lock::WorkspaceQuotaMb,
                asked.workspace_quota_mb,
                usual.workspace_quota_mb,
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
        let (asked, most_of_profile) = match self.origin {
            Origin::Hosting => (named.unwrap_or(default), None),
            Origin::Operator | Origin::Client | Origin::LangBotPlatform => {
                let asked = self.chosen(Lock::TimeoutSec, named, default);
                (asked, self.profile.max.timeout_sec)
            }
        };
        let mut granted = asked;
        let mut by = String::new();
        for (most, source) in self.bounds([most_of_profile, self.rules.maxima.timeout_sec]) {
            if granted > most {
                (granted, by) = (most, source);
            }
        }
        if granted < asked && named.is_some() {
            self.notices.push(format!(
                "timeout_sec was shortened from {asked} to {granted}, the most that {by} allows"
            ));
        }
        Duration::from_secs(granted)
    }

    /// The value of the request, or of the profile if the request has none or the field is locked.
    pub(crate) fn chosen<T: PartialEq + Display>(
        &mut self,
        lock: Lock,
        asked: Option<T>,
        default: T,
    ) -> T {
        match asked {
            Some(asked) if !self.profile.is_locked(lock) => asked,
            Some(asked) if asked != default => {
                let field: &str = lock.into();
                self.notices.push(format!(
                    "{field} is locked to {default} by profile `{}`; {asked} was asked for",
                    self.profile.name
                ));
                default
            }
            Some(_) | None => default,
        }
    }

    /// The maxima of profile and operator, each with its source.
    fn bounds<T>(&self, most: [Option<T>; 2]) -> impl Iterator<Item = (T, String)> + use<T> {
        let sources = [
            format!("profile `{}`", self.profile.name),
            "the operator".to_owned(),
        ];
        let bounds = most.into_iter().zip(sources);
        bounds.filter_map(|(most, source)| Some((most?, source)))
    }

    fn amount<T: PartialOrd + Copy + Display>(
        &mut self,
        lock: Lock,
        asked: Option<T>,
        default: T,
        most: [Option<T>; 2],
    ) -> Result<T, Denial> {
        let mut granted = self.chosen(lock, asked, default);
        for (most, by) in self.bounds(most) {
            if granted <= most {
                continue;
            }
            if asked.is_some() && !self.profile.is_locked(lock) {
                return Err(Denial::TooMuch {
                    field: lock.into(),
                    asked: granted.to_string(),
                    allowed: most.to_string(),
                    by,
                });
            }
            // The caller requested nothing that could be denied. The operator's two values conflict,
            // and the smaller one applies.
            granted = most;
        }
        Ok(granted)
    }
}
