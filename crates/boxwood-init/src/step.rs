//! An error that names the failed step of a plan.

use std::fmt;
use std::io;

use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct StepError {
    pub(crate) step: String,
    pub(crate) errno: i32,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            self.step,
            io::Error::from_raw_os_error(self.errno)
        )
    }
}

/// Adds the name of the step to an error.
pub(crate) trait Step<T> {
    fn step(self, what: &str) -> Result<T, StepError>;
    /// For step names that are formatted.
    fn step_with(self, what: impl FnOnce() -> String) -> Result<T, StepError>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, what: &str) -> Result<T, StepError> {
        self.step_with(|| what.to_owned())
    }
    fn step_with(self, what: impl FnOnce() -> String) -> Result<T, StepError> {
        self.map_err(|errno| StepError {
            step: what(),
            errno: errno.raw_os_error(),
        })
    }
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, what: &str) -> Result<T, StepError> {
        self.step_with(|| what.to_owned())
    }
    fn step_with(self, what: impl FnOnce() -> String) -> Result<T, StepError> {
        self.map_err(|error| StepError {
            step: what(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })
    }
}

impl<T> Step<T> for Result<T, boxwood_sys::netlink::NetlinkError> {
    fn step(self, what: &str) -> Result<T, StepError> {
        self.step_with(|| what.to_owned())
    }
    fn step_with(self, what: impl FnOnce() -> String) -> Result<T, StepError> {
        self.map_err(|error| StepError {
            step: format!("{}: {error}", what()),
            errno: error.errno().raw_os_error(),
        })
    }
}
