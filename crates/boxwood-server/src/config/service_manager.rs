//! Environment variables of the service manager (systemd).

use std::os::fd::OwnedFd;

/// Removed from the environment, so that child processes, such as container engines, do not report
/// to the service manager in the daemon's name.
const VARIABLES: [&str; 5] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
    "NOTIFY_SOCKET",
];

/// Upper limit for `LISTEN_FDS`.
const MAX_SOCKETS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ServiceManagerError {
    #[error("environment variable `{name}`: `{value}` is not {expected}")]
    Variable {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("failed to take the {count} sockets of `LISTEN_FDS`")]
    Descriptors {
        count: usize,
        source: std::io::Error,
    },
    #[error("failed to remove the variables of the service manager from the environment")]
    Remove { source: std::io::Error },
}

/// Sockets passed by the service manager, and its notification socket.
#[derive(Debug, Default)]
pub struct ServiceManager {
    pub(crate) sockets: Vec<ActivatedSocket>,
    pub(crate) notify_socket: Option<String>,
}

#[derive(Debug)]
pub(crate) struct ActivatedSocket {
    pub(crate) descriptor: OwnedFd,
    /// The name in the unit, for messages.
    pub(crate) name: String,
}

impl ServiceManager {
    /// Takes the variables out of the environment. Must be called once at startup, before there are
    /// other threads or open files.
    pub fn take() -> Result<Self, ServiceManagerError> {
        let text = |name: &str| {
            let value = std::env::var_os(name)?;
            Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
        };
        let pid = std::process::id();
        let names = socket_names(
            pid,
            text("LISTEN_PID").as_deref(),
            text("LISTEN_FDS").as_deref(),
            text("LISTEN_FDNAMES").as_deref(),
        );
        let notify_socket = text("NOTIFY_SOCKET");
        if VARIABLES
            .iter()
            .any(|name| std::env::var_os(name).is_some())
        {
            boxwood_sys::inherited::remove_variables(&VARIABLES)
                .map_err(|source| ServiceManagerError::Remove { source })?;
        }
        let names = names?;
        let mut manager = Self {
            sockets: Vec::new(),
            notify_socket,
        };
        if names.is_empty() {
            return Ok(manager);
        }
        let count = names.len();
        let descriptors = boxwood_sys::inherited::descriptors(count)
            .map_err(|source| ServiceManagerError::Descriptors { count, source })?;
        for (descriptor, name) in descriptors.into_iter().zip(names) {
            manager.sockets.push(ActivatedSocket { descriptor, name });
        }
        Ok(manager)
    }
}

/// One name per socket, from the values of `LISTEN_*`. Variables for another process were inherited
/// by accident and are ignored.
fn socket_names(
    pid: u32,
    owner: Option<&str>,
    count: Option<&str>,
    names: Option<&str>,
) -> Result<Vec<String>, ServiceManagerError> {
    let (Some(owner), Some(count)) = (owner, count) else {
        return Ok(Vec::new());
    };
    let wrong = |name, value: &str, expected| ServiceManagerError::Variable {
        name,
        value: value.to_owned(),
        expected,
    };
    let owner_pid: Result<u32, _> = owner.parse();
    if owner_pid.map_err(|_| wrong("LISTEN_PID", owner, "a process id"))? != pid {
        return Ok(Vec::new());
    }
    let sockets = count.parse().ok().filter(|sockets| *sockets <= MAX_SOCKETS);
    let sockets =
        sockets.ok_or_else(|| wrong("LISTEN_FDS", count, "a number of sockets up to 64"))?;
    let names = names.into_iter().flat_map(|names| names.split(':'));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.resize(sockets, "unknown".to_owned());
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_for_another_process_are_ignored() {
        let names = socket_names(8, Some("7"), Some("2"), None);
        assert!(names.expect("valid").is_empty());
        let names = socket_names(8, None, None, None);
        assert!(names.expect("valid").is_empty());
    }

    #[test]
    fn every_socket_has_a_name() {
        let check = |count: &str, names: Option<&str>, expected: &[&str]| {
            let names = socket_names(7, Some("7"), Some(count), names);
            assert_eq!(names.expect("valid"), expected);
        };
        check("2", None, &["unknown", "unknown"]);
        check("2", Some("http"), &["http", "unknown"]);
        check("1", Some("http:more"), &["http"]);
    }

    #[test]
    fn an_error_names_the_variable() {
        for (pid, count, variable) in [
            ("x", "1", "LISTEN_PID"),
            ("7", "-1", "LISTEN_FDS"),
            ("7", "65", "LISTEN_FDS"),
        ] {
            let error = socket_names(7, Some(pid), Some(count), None).expect_err("wrong");
            assert!(error.to_string().contains(variable), "{error}");
        }
    }
}
