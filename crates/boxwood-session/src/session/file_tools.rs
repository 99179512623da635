//! File operations for the tools of agents.

use boxwood_api::{
    EditTextRequest, EditedText, GlobMatches, GlobRequest, GrepMatches, GrepRequest,
    ReadTextRequest, SessionId, TextSlice, WriteTextRequest, WrittenText,
};
use boxwood_backend::{FileAnswer, FileCall, FileTool, FileToolAnswer};

use crate::{Result, SessionError, Sessions};

const MISMATCH: SessionError = SessionError::Internal {
    step: "matching the answer of a file operation to its request",
};

impl Sessions {
    pub async fn read_text(&self, id: &SessionId, request: ReadTextRequest) -> Result<TextSlice> {
        match self.file_tool(id, FileTool::Read(request)).await? {
            FileToolAnswer::Read(slice) => Ok(slice),
            _ => Err(MISMATCH),
        }
    }

    pub async fn write_text(
        &self,
        id: &SessionId,
        request: WriteTextRequest,
    ) -> Result<WrittenText> {
        match self.file_tool(id, FileTool::Write(request)).await? {
            FileToolAnswer::Write(written) => Ok(written),
            _ => Err(MISMATCH),
        }
    }

    pub async fn edit_text(&self, id: &SessionId, request: EditTextRequest) -> Result<EditedText> {
        match self.file_tool(id, FileTool::Edit(request)).await? {
            FileToolAnswer::Edit(edited) => Ok(edited),
            _ => Err(MISMATCH),
        }
    }

    pub async fn glob(&self, id: &SessionId, request: GlobRequest) -> Result<GlobMatches> {
        match self.file_tool(id, FileTool::Glob(request)).await? {
            FileToolAnswer::Glob(matches) => Ok(matches),
            _ => Err(MISMATCH),
        }
    }

    pub async fn grep(&self, id: &SessionId, request: GrepRequest) -> Result<GrepMatches> {
        match self.file_tool(id, FileTool::Grep(request)).await? {
            FileToolAnswer::Grep(matches) => Ok(matches),
            _ => Err(MISMATCH),
        }
    }

    async fn file_tool(&self, id: &SessionId, tool: FileTool) -> Result<FileToolAnswer> {
        match self.file(id, FileCall::Tool(tool)).await? {
            FileAnswer::Tool(answer) => Ok(answer),
            _ => Err(MISMATCH),
        }
    }
}
