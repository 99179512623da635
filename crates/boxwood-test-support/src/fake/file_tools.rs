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
    let (base, relative) = fake_box.locate(&path);
    let host_path = if relative.is_empty() {
        base
    } else {
        base.join(relative)
    };
    let names = PathNames {
        box_path: path.trim_end_matches('/').to_owned(),
        host_path: host_path.to_string_lossy().into_owned(),
    };
    let request_on_host = FileToolRequest::from(to_request(tool, &names.host_path));
    match file_tools::run(request_on_host, &|| true) {
        Ok(answer) => Ok(names.translate(answer, path)),
        Err(FileToolError { fault, text }) => Err(FileError::Refused {
            fault: fault_of(fault),
            text: text.replace(&names.host_path, &path),
        }),
    }
}

/// What a path is called in the box, and on the host.
struct PathNames {
    box_path: String,
    host_path: String,
}

impl PathNames {
    fn in_box(&self, path: &str) -> String {
        match path.strip_prefix(&self.host_path) {
            Some(relative) => format!("{}{relative}", self.box_path),
            None => path.to_owned(),
        }
    }

    fn translate(&self, answer: FileToolResponse, path: String) -> FileToolAnswer {
        match answer {
            FileToolResponse::Read(text) => FileToolAnswer::Read(text.at(path)),
            FileToolResponse::Write(written) => FileToolAnswer::Write(written.at(path)),
            FileToolResponse::Edit(mut edited) => {
                edited.diff = edited.diff.replace(&self.host_path, &self.box_path);
                FileToolAnswer::Edit(edited.at(path))
            }
            FileToolResponse::Glob(mut found) => {
                for path in &mut found.paths {
                    *path = self.in_box(path);
                }
                FileToolAnswer::Glob(found.into())
            }
            FileToolResponse::Grep(mut lines) => {
                for line in &mut lines.lines {
                    line.file = self.in_box(&line.file);
                }
                FileToolAnswer::Grep(lines.into())
            }
        }
    }
}

fn to_request(tool: FileTool, host_path: &str) -> file_tools::FileTool {
    let path = host_path.to_owned();
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
