//! The skill store. Paths are relative to the skill's package.

use boxwood_api::{
    CreateSkillRequest, DeletedFile, DeletedSkill, MoveSkillFileRequest, MovedSkillFile,
    RegisterSkillRequest, SessionId, SkillDetail, SkillFileList, SkillIntake, SkillList,
    UpdateSkillRequest, WrittenSkillFile,
};
use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderValue, IF_MATCH};

use crate::call::{empty, full, operation, to_json};
use crate::files::BINARY;
use crate::path::Target;
use crate::sessions::session;
use crate::{Client, ClientError, Download};

const ZIP: &str = "application/zip";

fn skill(name: &str) -> Target {
    Target::new("/v1/skills").segment(name)
}

fn file(name: &str, path: &str) -> Target {
    skill(name).fixed("files").path(path)
}

/// An archive with skills, and which of them to install.
#[derive(Clone, Debug, Default)]
pub struct SkillArchive {
    pub bytes: Bytes,
    /// File name of the archive. Also the name of an unnamed skill at its top level.
    pub filename: String,
    /// Directory in the archive to search.
    pub source_subdir: Option<String>,
    /// The skills to install; may be empty if there is only one.
    pub source_paths: Vec<String>,
    /// Suffix of the directory name.
    pub target_suffix: Option<String>,
    /// The name of the skill, overriding its own. For a single skill.
    pub name: Option<String>,
}

impl SkillArchive {
    fn target(&self) -> Target {
        let mut target = Target::new("/v1/skills/install").query("filename", &self.filename);
        if let Some(subdir) = &self.source_subdir {
            target = target.query("source_subdir", subdir);
        }
        for path in &self.source_paths {
            target = target.query("source_path", path);
        }
        if let Some(suffix) = &self.target_suffix {
            target = target.query("target_suffix", suffix);
        }
        if let Some(name) = &self.name {
            target = target.query("name", name);
        }
        target
    }
}

impl Client {
    pub async fn skills(&self) -> Result<SkillList, ClientError> {
        self.get(&Target::new("/v1/skills")).await
    }

    pub async fn skill(&self, name: &str) -> Result<SkillDetail, ClientError> {
        self.get(&skill(name)).await
    }

    pub async fn create_skill(
        &self,
        request: &CreateSkillRequest,
    ) -> Result<SkillDetail, ClientError> {
        self.post(&Target::new("/v1/skills"), request).await
    }

    /// Registers a directory of a box as a skill: its files are copied into the store.
    pub async fn register_skill(
        &self,
        id: &SessionId,
        request: &RegisterSkillRequest,
    ) -> Result<SkillDetail, ClientError> {
        let target = session(id).fixed("files").fixed("register_skill");
        self.post(&target, request).await
    }

    pub async fn update_skill(
        &self,
        name: &str,
        request: &UpdateSkillRequest,
    ) -> Result<SkillDetail, ClientError> {
        let target = skill(name);
        let body = to_json(&Method::PATCH, &target, request)?;
        self.json(Method::PATCH, &target, body, Some("application/json"))
            .await
    }

    pub async fn delete_skill(&self, name: &str) -> Result<DeletedSkill, ClientError> {
        self.delete(&skill(name)).await
    }

    /// One directory of the package; hidden entries as well when asked for.
    pub async fn skill_files(
        &self,
        name: &str,
        path: &str,
        include_hidden: bool,
    ) -> Result<SkillFileList, ClientError> {
        // The most the daemon lists at once.
        let mut target = skill(name)
            .fixed("files")
            .query("path", path)
            .query("max_entries", "10000");
        if include_hidden {
            target = target.query("include_hidden", "true");
        }
        self.get(&target).await
    }

    pub async fn read_skill_file(&self, name: &str, path: &str) -> Result<Download, ClientError> {
        self.download(&file(name, path), BINARY).await
    }

    /// Replaces the whole file. With the tag of an earlier read, the request fails if the file has changed since.
    pub async fn write_skill_file(
        &self,
        name: &str,
        path: &str,
        contents: impl Into<Bytes>,
        unless_changed_since: Option<&str>,
    ) -> Result<WrittenSkillFile, ClientError> {
        let target = file(name, path);
        let tag = unless_changed_since
            .map(HeaderValue::try_from)
            .transpose()
            .map_err(|error| {
                ClientError::unexpected(&operation(&Method::PUT, &target), error.to_string())
            })?;
        self.json_with(
            Method::PUT,
            &target,
            full(contents),
            Some(BINARY),
            tag.map(|tag| (IF_MATCH, tag)),
        )
        .await
    }

    /// Removes a file, or a directory with everything in it.
    pub async fn delete_skill_file(
        &self,
        name: &str,
        path: &str,
    ) -> Result<DeletedFile, ClientError> {
        self.delete(&file(name, path)).await
    }

    pub async fn move_skill_file(
        &self,
        name: &str,
        request: &MoveSkillFileRequest,
    ) -> Result<MovedSkillFile, ClientError> {
        self.post(&skill(name).fixed("move"), request).await
    }

    /// What an archive holds. Nothing is installed.
    pub async fn preview_skills(&self, archive: &SkillArchive) -> Result<SkillIntake, ClientError> {
        let target = archive.target().query("preview", "true");
        let body = full(archive.bytes.clone());
        self.json(Method::POST, &target, body, Some(ZIP)).await
    }

    pub async fn install_skills(&self, archive: &SkillArchive) -> Result<SkillIntake, ClientError> {
        let body = full(archive.bytes.clone());
        self.json(Method::POST, &archive.target(), body, Some(ZIP))
            .await
    }

    /// The package as a zip archive.
    pub async fn export_skill(&self, name: &str) -> Result<Download, ClientError> {
        self.download(&skill(name).fixed("export"), ZIP).await
    }

    async fn download(
        &self,
        target: &Target,
        accept: &'static str,
    ) -> Result<Download, ClientError> {
        let response = self
            .send(Method::GET, target, empty(), None, accept)
            .await?;
        Ok(Download::new(operation(&Method::GET, target), response))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_says_what_is_wanted_of_it() {
        let archive = SkillArchive {
            filename: "my skills.zip".to_owned(),
            source_paths: vec!["a".to_owned(), "b/c".to_owned()],
            target_suffix: Some(String::new()),
            ..SkillArchive::default()
        };
        assert_eq!(
            archive.target().as_str(),
            "/v1/skills/install?filename=my%20skills.zip&source_path=a&source_path=b%2Fc&target_suffix="
        );
    }
}
