//! Agents' file tools, through a helper inside the box.
//!
//! Comes in: a tool and its request. Goes out: its answer, read from a pipe to its end and no further
//! than any honest answer goes. The order travels in a file in memory, so that init passes it on unread.

use std::io;

use boxwood_backend::{FileError, FileFault, FileTool, FileToolAnswer, SpawnError};
use boxwood_init::Program;
use boxwood_init::file_tools::{
    self, LARGEST_ANSWER, ToolAnswer, ToolFailure, ToolFault, ToolOrder,
};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt as _;

use crate::files::{DEADLINE, check};
use crate::local_box::LocalBox;
use crate::pipe::PipeReader;
use crate::streams::sealed;

fn step<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> FileError {
    move |source| FileError::Step {
        step: step.to_owned(),
        source: source.into(),
    }
}

pub(crate) async fn call(sandbox: &LocalBox, tool: FileTool) -> Result<FileToolAnswer, FileError> {
    let path = tool.path().to_owned();
    check(&path)?;
    let order = postcard::to_stdvec(&ToolOrder::from(words(tool)))
        .map_err(io::Error::other)
        .map_err(step("write down the order"))?;
    let order = sealed(&order).map_err(step("write down the order"))?;
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(step("open a pipe"))?;
    let program = Program::FileTool {
        order: 0,
        answer: 1,
    };
    let helper = sandbox
        .spawn_program(program, vec![order, theirs])
        .await
        .map_err(|error| match error {
            SpawnError::Gone => FileError::Gone,
            SpawnError::PidsLimit => FileError::PidsLimit,
            error => step("start the helper")(io::Error::other(error)),
        })?;
    // While this end is open the helper knows that it is wanted.
    let ours = PipeReader::new(ours, None).map_err(step("wait for the helper"))?;
    let mut bytes = Vec::new();
    let most = LARGEST_ANSWER as u64 + 1;
    let answer = tokio::time::timeout(DEADLINE, ours.take(most).read_to_end(&mut bytes)).await;
    match answer {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(step("hear from the helper")(error)),
        Err(_elapsed) => {
            helper.kill().await;
            return Err(step("finish in time")(io::ErrorKind::TimedOut));
        }
    }
    if bytes.len() > LARGEST_ANSWER {
        helper.kill().await;
        return Err(step("hear from the helper")(io::Error::other(
            "its answer is too large",
        )));
    }
    let outcome: Result<Result<ToolAnswer, ToolFailure>, _> = postcard::from_bytes(&bytes);
    match outcome {
        Ok(Ok(answer)) => Ok(wire(answer, path)),
        Ok(Err(ToolFailure { fault, text })) => Err(FileError::Refused {
            fault: fault_of(fault),
            text,
        }),
        // It died in the middle of its answer or before: the box is gone, or had no room for it.
        Err(_) if helper.went_with_its_box().await => Err(FileError::Gone),
        Err(_) => Err(step("hear from the helper")(io::Error::other(
            "it ended without an answer; the box may be short of memory",
        ))),
    }
}

fn words(tool: FileTool) -> file_tools::FileTool {
    match tool {
        FileTool::Read(request) => request.into(),
        FileTool::Write(request) => request.into(),
        FileTool::Edit(request) => request.into(),
        FileTool::Glob(request) => request.into(),
        FileTool::Grep(request) => request.into(),
    }
}

fn wire(answer: ToolAnswer, path: String) -> FileToolAnswer {
    match answer {
        ToolAnswer::Read(text) => FileToolAnswer::Read(text.at(path)),
        ToolAnswer::Write(written) => FileToolAnswer::Write(written.at(path)),
        ToolAnswer::Edit(edited) => FileToolAnswer::Edit(edited.at(path)),
        ToolAnswer::Glob(found) => FileToolAnswer::Glob(found.into()),
        ToolAnswer::Grep(lines) => FileToolAnswer::Grep(lines.into()),
    }
}

fn fault_of(fault: ToolFault) -> FileFault {
    match fault {
        ToolFault::NotFound => FileFault::NotFound,
        ToolFault::Denied => FileFault::Denied,
        ToolFault::NotADirectory => FileFault::NotADirectory,
        ToolFault::IsADirectory => FileFault::IsADirectory,
        ToolFault::NotAFile => FileFault::NotAFile,
        ToolFault::NoSpace => FileFault::NoSpace,
        ToolFault::ReadOnly => FileFault::ReadOnly,
        ToolFault::TooManyLinks => FileFault::TooManyLinks,
        ToolFault::BadPath => FileFault::BadPath,
        ToolFault::Unfit => FileFault::Unfit,
        ToolFault::TooLarge => FileFault::TooLarge,
        ToolFault::Other => FileFault::Other,
    }
}
