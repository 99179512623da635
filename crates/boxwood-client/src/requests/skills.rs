//! The skill store. Paths are relative to the skill's package.

use boxwood_api::{
    DeletedSkill, RegisterSkillRequest, SessionId, SkillDetail, SkillFileList, SkillIntake,
    SkillList, WrittenSkillFile,
};
use bytes::Bytes;
use hyper::Method;

use super::session;
use crate::http::target::Target;
use crate::http::{BINARY, full_body};
use crate::{Client, Download, Result};

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
        let target = Target::new("/v1/skills/install")
            .query("filename", &self.filename)
            .maybe_query("source_subdir", self.source_subdir.as_deref());
        let paths = self.source_paths.iter();
        paths
            .fold(target, |target, path| target.query("source_path", path))
            .maybe_query("target_suffix", self.target_suffix.as_deref())
            .maybe_query("name", self.name.as_deref())
    }
}

impl Client {
    pub async fn skills(&self) -> Result<SkillList> {
        self.get(&Target::new("/v1/skills")).await
    }

    pub async fn skill(&self, name: &str) -> Result<SkillDetail> {
        self.get(&skill(name)).await
    }

    /// Registers a directory of a box as a skill: its files are copied into the store.
    pub async fn register_skill(
        &self,
        id: &SessionId,
        request: &RegisterSkillRequest,
    ) -> Result<SkillDetail> {
        let target = session(id).fixed("files").fixed("register_skill");
        self.post(&target, request).await
    }

    pub async fn delete_skill(&self, name: &str) -> Result<DeletedSkill> {
        self.delete(&skill(name)).await
    }

    /// One directory of the package.
    pub async fn skill_files(
        &self,
        name: &str,
        path: &str,
        include_hidden: bool,
    ) -> Result<SkillFileList> {
        let target = skill(name)
            .fixed("files")
            .query("path", path)
            // The maximum that the daemon lists.
            .query("max_entries", "10000")
            .maybe_query("include_hidden", include_hidden.then_some("true"));
        self.get(&target).await
    }

    pub async fn read_skill_file(&self, name: &str, path: &str) -> Result<Download> {
        self.download(&file(name, path), BINARY).await
    }

    /// Replaces the whole file. With the tag of an earlier read, the request fails if the file has changed since.
    pub async fn write_skill_file(
        &self,
        name: &str,
        path: &str,
        contents: impl Into<Bytes>,
        unless_changed_since: Option<&str>,
    ) -> Result<WrittenSkillFile> {
        let mut call = self.call(Method::PUT, &file(name, path));
        if let Some(tag) = unless_changed_since {
            call = call.header("if-match", tag);
        }
        call.body(BINARY, full_body(contents)).json().await
    }

    /// Lists the skills in an archive without installing them.
    pub async fn preview_skills(&self, archive: &SkillArchive) -> Result<SkillIntake> {
        let target = archive.target().query("preview", "true");
        self.send_archive(&target, archive).await
    }

    pub async fn install_skills(&self, archive: &SkillArchive) -> Result<SkillIntake> {
        self.send_archive(&archive.target(), archive).await
    }

    async fn send_archive(&self, target: &Target, archive: &SkillArchive) -> Result<SkillIntake> {
        let call = self.call(Method::POST, target);
        call.body(ZIP, full_body(archive.bytes.clone()))
            .json()
            .await
    }

    /// The package as a zip archive.
    pub async fn export_skill(&self, name: &str) -> Result<Download> {
        self.download(&skill(name).fixed("export"), ZIP).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_an_archive_has_its_parameters() {
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
