//! A program at the other end of two pipes, which prints one line for each line that is sent. It is killed on drop.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

pub(in super::super) struct Pipe {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Pipe {
    pub(in super::super) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("`{}` could not be started", command.get_program().display())
            })?;
        let stdin = child.stdin.take().context("the process has no stdin")?;
        let stdout = child.stdout.take().context("the process has no stdout")?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    pub(in super::super) fn send(&mut self, line: &str) -> Result<()> {
        Ok(self.stdin.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Sends a line and returns the next line of the process, without its end.
    pub(in super::super) fn request(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        let mut answer = String::new();
        let count = self.stdout.read_line(&mut answer)?;
        ensure!(count > 0, "the process closed its output");
        answer.truncate(answer.trim_end().len());
        Ok(answer)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_gets_the_next_line_of_the_process() {
        let mut pipe = Pipe::start(&mut Command::new("cat")).unwrap();
        assert_eq!(pipe.request("one").unwrap(), "one");
        assert_eq!(pipe.request("two").unwrap(), "two");
    }

    #[test]
    fn a_process_that_ends_is_an_error() {
        let mut pipe = Pipe::start(Command::new("sh").args(["-c", "read line"])).unwrap();
        let error = pipe.request("one").unwrap_err();
        assert_eq!(error.to_string(), "the process closed its output");
    }
}
