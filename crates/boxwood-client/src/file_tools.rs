//! What agents' file tools ask of a session's files. All of it is done inside the box.

use boxwood_api::{
    EditTextRequest, EditedText, GlobMatches, GlobRequest, GrepMatches, GrepRequest,
    ReadTextRequest, SessionId, TextSlice, WriteTextRequest, WrittenText,
};

use crate::path::Target;
use crate::sessions::session;
use crate::{Client, ClientError};

fn tool(id: &SessionId, name: &'static str) -> Target {
    session(id).fixed("files").fixed(name)
}

impl Client {
    /// Some lines of a text file, or the names in a directory.
    pub async fn read_text(
        &self,
        id: &SessionId,
        request: &ReadTextRequest,
    ) -> Result<TextSlice, ClientError> {
        self.post(&tool(id, "read"), request).await
    }

    /// Puts a whole text file in its place, with the directories above it.
    pub async fn write_text(
        &self,
        id: &SessionId,
        request: &WriteTextRequest,
    ) -> Result<WrittenText, ClientError> {
        self.post(&tool(id, "write"), request).await
    }

    /// Replaces an exact text in a file.
    pub async fn edit_text(
        &self,
        id: &SessionId,
        request: &EditTextRequest,
    ) -> Result<EditedText, ClientError> {
        self.post(&tool(id, "edit"), request).await
    }

    /// Files whose path fits a pattern.
    pub async fn glob(
        &self,
        id: &SessionId,
        request: &GlobRequest,
    ) -> Result<GlobMatches, ClientError> {
        self.post(&tool(id, "glob"), request).await
    }

    /// Lines of files that fit a regular expression.
    pub async fn grep(
        &self,
        id: &SessionId,
        request: &GrepRequest,
    ) -> Result<GrepMatches, ClientError> {
        self.post(&tool(id, "grep"), request).await
    }
}
