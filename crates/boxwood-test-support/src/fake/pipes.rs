//! The streams of a child, as the backend contract wants them.

use std::io;

use boxwood_backend::{Copied, Input, Output};
use tokio::process::Child;

use super::terminal::Terminal;

pub(super) struct Streams {
    pub(super) stdin: Option<Box<dyn Input>>,
    pub(super) stdout: Box<dyn Output>,
    pub(super) stderr: Option<Box<dyn Output>>,
}

pub(super) fn of_child(child: &mut Child) -> io::Result<Streams> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("the child has no output pipes"));
    };
    Ok(Streams {
        stdin: child.stdin.take().map(|stdin| Box::new(Copied(stdin)) as _),
        stdout: Box::new(Copied(stdout)),
        stderr: Some(Box::new(Copied(stderr))),
    })
}

pub(super) fn of_terminal(terminal: &Terminal) -> io::Result<Streams> {
    Ok(Streams {
        stdin: Some(Box::new(Copied(terminal.input()?))),
        stdout: Box::new(Copied(terminal.output()?)),
        stderr: None,
    })
}
