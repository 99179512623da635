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
        let variables = ListenVariables {
            pid: text("LISTEN_PID"),
            count: text("LISTEN_FDS"),
            names: text("LISTEN_FDNAMES"),
        };
        let notify_socket = text("NOTIFY_SOCKET");
        if VARIABLES
            .iter()
            .any(|name| std::env::var_os(name).is_some())
        {
            boxwood_sys::inherited::remove_variables(&VARIABLES)
                .map_err(|source| ServiceManagerError::Remove { source })?;
        }
        let names = variables.names_for(std::process::id())?;
        if names.is_empty() {
            return Ok(Self {
                sockets: Vec::new(),
                notify_socket,
            });
        }
        let count = names.len();
        let descriptors = boxwood_sys::inherited::descriptors(count)
            .map_err(|source| ServiceManagerError::Descriptors { count, source })?;
        let sockets = descriptors.into_iter().zip(names);
        Ok(Self {
            sockets: sockets
                .map(|(descriptor, name)| ActivatedSocket { descriptor, name })
                .collect(),
            notify_socket,
        })
    }
}

/// The values of `LISTEN_*`.
#[derive(Default)]
struct ListenVariables {
    pid: Option<String>,
    count: Option<String>,
    names: Option<String>,
}

impl ListenVariables {
    /// One name per socket. Variables for another process were inherited by accident and are
    /// ignored.
    fn names_for(&self, pid: u32) -> Result<Vec<String>, ServiceManagerError> {
        let number = |name, value: &String, expected| {
            let wrong = || ServiceManagerError::Variable {
                name,
                value: value.clone(),
                expected,
            };
            value.parse::<u32>().map_err(|_| wrong())
        };
        let (Some(owner), Some(count)) = (&self.pid, &self.count) else {
            return Ok(Vec::new());
        };
        if number("LISTEN_PID", owner, "a process id")? != pid {
            return Ok(Vec::new());
        }
        let expected = "a number of sockets up to 64";
        let parsed = number("LISTEN_FDS", count, expected)?;
        let sockets = usize::try_from(parsed)
            .ok()
            .filter(|sockets| *sockets <= MAX_SOCKETS)
            .ok_or_else(|| ServiceManagerError::Variable {
                name: "LISTEN_FDS",
                value: count.clone(),
                expected,
            })?;
        let mut names: Vec<String> = match &self.names {
            Some(names) => names.split(':').map(str::to_owned).collect(),
            None => Vec::new(),
        };
        names.resize(sockets, "unknown".to_owned());
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pid: &str, count: &str, names: Option<&str>) -> ListenVariables {
        ListenVariables {
            pid: Some(pid.to_owned()),
            count: Some(count.to_owned()),
            names: names.map(str::to_owned),
        }
    }

    #[test]
    fn sockets_for_another_process_are_nobodys() {
        assert!(
            variables("7", "2", None)
                .names_for(8)
                .expect("valid")
                .is_empty()
        );
        assert!(
            ListenVariables::default()
                .names_for(8)
                .expect("valid")
                .is_empty()
        );
    }

    #[test]
    fn every_socket_has_a_name() {
        let names = |variables: ListenVariables| variables.names_for(7).expect("valid");
        assert_eq!(names(variables("7", "2", None)), ["unknown", "unknown"]);
        assert_eq!(
            names(variables("7", "2", Some("http"))),
            ["http", "unknown"]
        );
        assert_eq!(names(variables("7", "1", Some("http:more"))), ["http"]);
    }

    #[test]
    fn a_mistake_names_the_variable() {
        for (pid, count, variable) in [
            ("x", "1", "LISTEN_PID"),
            ("7", "-1", "LISTEN_FDS"),
            ("7", "65", "LISTEN_FDS"),
        ] {
            let error = variables(pid, count, None).names_for(7).expect_err("wrong");
            assert!(error.to_string().contains(variable), "{error}");
        }
    }
}
