//! File tools of agents. They run inside the box.

use boxwood_api::{
    EditTextRequest, EditedText, GlobMatches, GlobRequest, GrepMatches, GrepRequest,
    ReadTextRequest, SessionId, TextSlice, WriteTextRequest, WrittenText,
};

use super::session;
use crate::http::target::Target;
use crate::{Client, Result};

fn tool(id: &SessionId, name: &'static str) -> Target {
    session(id).fixed("files").fixed(name)
}

impl Client {
    /// Reads lines of a text file, or lists a directory.
    pub async fn read_text(&self, id: &SessionId, request: &ReadTextRequest) -> Result<TextSlice> {
        self.post(&tool(id, "read"), request).await
    }

    /// Writes a text file, creating parent directories.
    pub async fn write_text(
        &self,
        id: &SessionId,
        request: &WriteTextRequest,
    ) -> Result<WrittenText> {
        self.post(&tool(id, "write"), request).await
    }

    /// Replaces an exact text in a file.
    pub async fn edit_text(&self, id: &SessionId, request: &EditTextRequest) -> Result<EditedText> {
        self.post(&tool(id, "edit"), request).await
    }

    /// Finds files by a glob pattern.
    pub async fn glob(&self, id: &SessionId, request: &GlobRequest) -> Result<GlobMatches> {
        self.post(&tool(id, "glob"), request).await
    }

    /// Finds lines by a regular expression.
    pub async fn grep(&self, id: &SessionId, request: &GrepRequest) -> Result<GrepMatches> {
        self.post(&tool(id, "grep"), request).await
    }
}
