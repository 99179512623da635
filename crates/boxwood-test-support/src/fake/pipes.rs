//! The streams of a child, as the backend contract wants them.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Child;

use super::terminal::Terminal;

pub(super) struct Streams {
    pub(super) stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(super) stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
}

pub(super) fn of_child(child: &mut Child) -> io::Result<Streams> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("the child has no output pipes"));
    };
    Ok(Streams {
        stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
        stdout: Box::new(stdout),
        stderr: Some(Box::new(stderr)),
    })
}

pub(super) fn of_terminal(terminal: &Terminal) -> io::Result<Streams> {
    Ok(Streams {
        stdin: Some(Box::new(terminal.input()?)),
        stdout: Box::new(terminal.output()?),
        stderr: None,
    })
}
