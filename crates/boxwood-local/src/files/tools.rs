//! File tools of agents, run by a helper process inside the box.
//!
//! The request travels in a memfd, which init passes on unread. The answer is read from a pipe, up to a
//! fixed size.

use std::io;

use boxwood_backend::{FileError, FileFault, FileTool, FileToolAnswer};
use boxwood_init::Program;
use boxwood_init::file_tools::{
    self, FileToolError, FileToolErrorKind, FileToolRequest, FileToolResponse, MAX_RESPONSE_BYTES,
};
use boxwood_sys::memory::sealed_file;
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt as _;

use crate::files::{DEADLINE, not_started, step};
use crate::process::pipe::PipeReader;
use crate::sandbox::LocalBox;

pub(crate) async fn call(sandbox: &LocalBox, tool: FileTool) -> Result<FileToolAnswer, FileError> {
    let path = tool.path().to_owned();
    let request = postcard::to_stdvec(&FileToolRequest::from(helper_tool(tool)))
        .map_err(io::Error::other)
        .map_err(step("encode the request"))?;
    let request =
        sealed_file("request", MemfdFlags::empty(), &request).map_err(step("write the request"))?;
    let (response_reader, response_writer) =
        pipe_with(PipeFlags::CLOEXEC).map_err(step("open a pipe"))?;
    let program = Program::FileTool {
        request: 0,
        response: 1,
    };
    let helper = sandbox
        .spawn_program(program, vec![request, response_writer])
        .await
        .map_err(not_started)?;
    // Closing this end cancels the helper.
    let response_reader =
        PipeReader::new(response_reader, None).map_err(step("wait for the file helper"))?;
    let mut bytes = Vec::new();
    let max_bytes = MAX_RESPONSE_BYTES as u64 + 1;
    let outcome = tokio::time::timeout(
        DEADLINE,
        response_reader.take(max_bytes).read_to_end(&mut bytes),
    )
    .await;
    match outcome {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(step("read the file helper's answer")(error)),
        Err(_elapsed) => {
            helper.kill().await;
            return Err(step("finish in time")(io::ErrorKind::TimedOut));
        }
    }
    if bytes.len() > MAX_RESPONSE_BYTES {
        helper.kill().await;
        return Err(step("read the file helper's answer")(io::Error::other(
            "the answer is too large",
        )));
    }
    let outcome: Result<Result<FileToolResponse, FileToolError>, _> = postcard::from_bytes(&bytes);
    match outcome {
        Ok(Ok(answer)) => Ok(wire(answer, path)),
        Ok(Err(FileToolError { fault, text })) => Err(FileError::Refused {
            fault: fault_of(fault),
            text,
        }),
        // The helper died before it finished: the box is gone, or it ran out of memory.
        Err(_) if helper.ended_with_box().await => Err(FileError::Gone),
        Err(_) => Err(step("read the file helper's answer")(io::Error::other(
            "the helper ended without an answer; the box may be out of memory",
        ))),
    }
}

fn helper_tool(tool: FileTool) -> file_tools::FileTool {
    match tool {
        FileTool::Read(request) => request.into(),
        FileTool::Write(request) => request.into(),
        FileTool::Edit(request) => request.into(),
        FileTool::Glob(request) => request.into(),
        FileTool::Grep(request) => request.into(),
    }
}

fn wire(answer: FileToolResponse, path: String) -> FileToolAnswer {
    match answer {
        FileToolResponse::Read(text) => FileToolAnswer::Read(text.at(path)),
        FileToolResponse::Write(written) => FileToolAnswer::Write(written.at(path)),
        FileToolResponse::Edit(edited) => FileToolAnswer::Edit(edited.at(path)),
        FileToolResponse::Glob(found) => FileToolAnswer::Glob(found.into()),
        FileToolResponse::Grep(lines) => FileToolAnswer::Grep(lines.into()),
    }
}

fn fault_of(fault: FileToolErrorKind) -> FileFault {
    match fault {
        FileToolErrorKind::NotFound => FileFault::NotFound,
        FileToolErrorKind::Denied => FileFault::Denied,
        FileToolErrorKind::NotADirectory => FileFault::NotADirectory,
        FileToolErrorKind::IsADirectory => FileFault::IsADirectory,
        FileToolErrorKind::NotAFile => FileFault::NotAFile,
        FileToolErrorKind::NoSpace => FileFault::NoSpace,
        FileToolErrorKind::ReadOnly => FileFault::ReadOnly,
        FileToolErrorKind::TooManyLinks => FileFault::TooManyLinks,
        FileToolErrorKind::BadPath => FileFault::BadPath,
        FileToolErrorKind::InvalidArgument => FileFault::Unfit,
        FileToolErrorKind::TooLarge => FileFault::TooLarge,
        FileToolErrorKind::Other => FileFault::Other,
    }
}
