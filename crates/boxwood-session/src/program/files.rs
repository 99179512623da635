//! The memory files of a program that survive the daemon.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::facts::{Fact, Facts};
use super::journal::{Journal, invalid_data};
use crate::admission::Budget;

pub(crate) struct Files {
    pub(crate) stdin: Journal,
    pub(crate) stdout: Journal,
    pub(crate) stderr: Journal,
    pub(crate) facts: Facts,
}

impl Files {
    pub(crate) fn new(budget: &Budget) -> io::Result<Self> {
        Ok(Self {
            stdin: Journal::new("stdin")?.counted(budget),
            stdout: Journal::new("stdout")?.counted(budget),
            stderr: Journal::new("stderr")?.counted(budget),
            facts: Facts::new()?,
        })
    }

    /// In the order of [`Files::from_files`].
    pub(crate) fn all(&self) -> Vec<Arc<OwnedFd>> {
        [&self.stdin, &self.stdout, &self.stderr]
            .into_iter()
            .flat_map(Journal::files)
            .chain([self.facts.file()])
            .collect()
    }

    pub(crate) fn from_files(
        files: Vec<OwnedFd>,
        budget: &Budget,
    ) -> io::Result<(Self, Vec<Fact>)> {
        let files: [OwnedFd; 7] = files
            .try_into()
            .map_err(|_| invalid_data("a program has an unexpected number of journals"))?;
        let [
            stdin,
            stdin_out,
            stdout,
            stdout_out,
            stderr,
            stderr_out,
            facts,
        ] = files;
        let (facts, recorded) = Facts::from_file(facts)?;
        let files = Self {
            stdin: Journal::from_files(stdin, stdin_out)?.counted(budget),
            stdout: Journal::from_files(stdout, stdout_out)?.counted(budget),
            stderr: Journal::from_files(stderr, stderr_out)?.counted(budget),
            facts,
        };
        Ok((files, recorded))
    }
}
