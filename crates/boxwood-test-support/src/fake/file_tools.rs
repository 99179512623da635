//! Agents' file tools on a fake box: the implementation of real boxes, on the directories of the fake one.

use boxwood_backend::{FileError, FileFault, FileTool, FileToolAnswer};
use boxwood_init::file_tools::{
    self, FileToolError, FileToolErrorKind, FileToolRequest, FileToolResponse,
};

use super::boxes::FakeBox;

pub(super) fn answer(fake_box: &FakeBox, tool: FileTool) -> Result<FileToolAnswer, FileError> {
    let path = tool.path().to_owned();
    if !path.starts_with('/') || path.contains('\0') {
        return Err(FileError::Fault {
            fault: FileFault::BadPath,
            path,
            text: "not an absolute path to a file".to_owned(),
        });
    }
    let (base, rest) = fake_box.locate(&path);
    let outside = if rest.is_empty() {
        base
    } else {
        base.join(rest)
    };
    let names = Names {
        inside: path.trim_end_matches('/').to_owned(),
        outside: outside.to_string_lossy().into_owned(),
    };
    let request_on_host = FileToolRequest::from(to_request(tool, &names.outside));
    match file_tools::run(request_on_host, &|| true) {
        Ok(answer) => Ok(names.wire(answer, path)),
        Err(FileToolError { fault, text }) => Err(FileError::Refused {
            fault: fault_of(fault),
            text: text.replace(&names.outside, &path),
        }),
    }
}

/// What a path is called in the box, and on the host.
struct Names {
    inside: String,
    outside: String,
}

impl Names {
    fn inside(&self, path: &str) -> String {
        match path.strip_prefix(&self.outside) {
            Some(rest) => format!("{}{rest}", self.inside),
            None => path.to_owned(),
        }
    }

    fn wire(&self, answer: FileToolResponse, path: String) -> FileToolAnswer {
        match answer {
            FileToolResponse::Read(text) => FileToolAnswer::Read(text.at(path)),
            FileToolResponse::Write(written) => FileToolAnswer::Write(written.at(path)),
            FileToolResponse::Edit(mut edited) => {
                edited.diff = edited.diff.replace(&self.outside, &self.inside);
                FileToolAnswer::Edit(edited.at(path))
            }
            FileToolResponse::Glob(mut found) => {
                for path in &mut found.paths {
                    *path = self.inside(path);
                }
                FileToolAnswer::Glob(found.into())
            }
            FileToolResponse::Grep(mut lines) => {
                for line in &mut lines.lines {
                    line.file = self.inside(&line.file);
                }
                FileToolAnswer::Grep(lines.into())
            }
        }
    }
}

fn to_request(tool: FileTool, outside: &str) -> file_tools::FileTool {
    let path = outside.to_owned();
    match tool {
        FileTool::Read(mut request) => {
            request.path = path;
            request.into()
        }
        FileTool::Write(mut request) => {
            request.path = path;
            request.into()
        }
        FileTool::Edit(mut request) => {
            request.path = path;
            request.into()
        }
        FileTool::Glob(mut request) => {
            request.path = path;
            request.into()
        }
        FileTool::Grep(mut request) => {
            request.path = path;
            request.into()
        }
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
