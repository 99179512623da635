//! The agent tools' access to the skill store.

use boxwood_api::{SkillDetail, SkillInfo};
use boxwood_skills::SkillError;
use bytes::Bytes;

use super::DaemonBoxes;
use crate::http::{ApiResult, skill_detail, skill_info, skill_refusal, with_store};

impl DaemonBoxes {
    pub(super) async fn all_skills(&self) -> ApiResult<Vec<SkillInfo>> {
        with_store(&self.skills, |store| {
            let skills = store.list().map_err(|error| skill_refusal(&error))?;
            Ok(skills.iter().map(skill_info).collect())
        })
        .await
    }

    pub(super) async fn one_skill(&self, name: &str) -> ApiResult<Option<SkillDetail>> {
        let name = name.to_owned();
        with_store(&self.skills, move |store| {
            let found = store.get(&name).map_err(|error| skill_refusal(&error))?;
            Ok(found.map(skill_detail))
        })
        .await
    }

    pub(super) async fn put_skill_file(
        &self,
        name: &str,
        path: &str,
        content: Bytes,
    ) -> ApiResult<()> {
        let _permit = self.skill_uploads.permit().await?;
        let (name, path) = (name.to_owned(), path.to_owned());
        with_store(&self.skills, move |store| {
            let written = store.write(&name, &path, &content);
            written.map(drop).map_err(|error| skill_refusal(&error))
        })
        .await
    }

    pub(super) async fn get_skill_file(&self, name: &str, path: &str) -> ApiResult<Bytes> {
        let (name, path) = (name.to_owned(), path.to_owned());
        with_store(&self.skills, move |store| {
            let read = store.read_bytes(&name, &path);
            let content = |error: SkillError| skill_refusal(&error);
            read.map(|file| Bytes::from(file.content)).map_err(content)
        })
        .await
    }
}
