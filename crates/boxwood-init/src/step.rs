//! An error that names the failed step of a plan.

use std::fmt;
use std::io;

use boxwood_sys::netlink::NetlinkError;
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
pub(crate) trait Step<T>: Sized {
    /// For step names that are formatted.
    fn step_with(self, what: impl FnOnce() -> String) -> Result<T, StepError>;

    fn step(self, what: &str) -> Result<T, StepError> {
        self.step_with(|| what.to_owned())
    }
}

impl<T, E> Step<T> for Result<T, E>
where
    StepError: From<(String, E)>,
{
    fn step_with(self, what: impl FnOnce() -> String) -> Result<T, StepError> {
        self.map_err(|error| StepError::from((what(), error)))
    }
}

impl From<(String, Errno)> for StepError {
    fn from((step, errno): (String, Errno)) -> Self {
        let errno = errno.raw_os_error();
        Self { step, errno }
    }
}

impl From<(String, io::Error)> for StepError {
    fn from((step, error): (String, io::Error)) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Self { step, errno }
    }
}

impl From<(String, NetlinkError)> for StepError {
    fn from((step, error): (String, NetlinkError)) -> Self {
        let step = format!("{step}: {error}");
        let errno = error.errno().raw_os_error();
        Self { step, errno }
    }
}
