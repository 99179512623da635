//! Registers a directory of a box as a skill.
//!
//! Files may change meanwhile. They are packed into an archive and installed like an upload, so
//! that the same rules apply. Symlinks are refused, because their targets are inside the box.

use std::io::{Cursor, Write as _};
use std::sync::Arc;

use boxwood_api::{CreateSkillRequest, ErrorCode, FileEntry, FileKind, SkillDetail, with_causes};
use boxwood_skills::{Limits, Skill, SkillPatch, SkillStore};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::boxes::read_part;
use crate::http::{
    ApiError, ApiResult, InSession, UploadGate, install_package, skill_detail, skill_refusal,
    with_store,
};

/// Directory of mounted skills, below the workspace.
const SKILLS: &str = ".skills";

/// Archive overhead per file, rounded up.
const OVERHEAD: u64 = 256;

pub(crate) async fn register(
    session: &InSession,
    path: &str,
    store: &SkillStore,
    uploads: &Arc<UploadGate>,
    request: CreateSkillRequest,
) -> ApiResult<SkillDetail> {
    // An upload permit, because a whole archive is held in memory.
    let _permit = uploads.permit().await?;
    let packing = Packing {
        session,
        path,
        limits: store.limits(),
        entries: 0,
        bytes: 0,
        zip: ZipWriter::new(Cursor::new(Vec::new())),
    };
    let archive = Box::pin(packing.run()).await?;
    let uploads = Arc::clone(uploads);
    let source_path = path.to_owned();
    with_store(store, move |store| {
        // Holds the lock, so that checking names and installing is atomic.
        let _write_lock = uploads.lock();
        let name = Some(request.name.trim().to_owned()).filter(|name| !name.is_empty());
        let skill = install_package(store, &archive, name.as_deref(), &source_path)?;
        describe(store, skill, request).map(skill_detail)
    })
    .await
}

/// Overrides name and description in the `SKILL.md`.
fn describe(store: &SkillStore, skill: Skill, request: CreateSkillRequest) -> ApiResult<Skill> {
    let patch = SkillPatch {
        display_name: request.display_name,
        description: request.description,
        instructions: request.instructions,
        ..SkillPatch::default()
    };
    if patch == SkillPatch::default() {
        return Ok(skill);
    }
    store.update(&skill.name, &patch).map_err(|error| {
        // Undo the installation if the override failed.
        if let Err(undo) = store.delete(&skill.name) {
            tracing::warn!(skill = skill.name, error = %with_causes(&undo), "failed to undo a partial registration; the skill stays in the store");
        }
        skill_refusal(&error)
    })
}

/// Walks through a directory of a box.
struct Packing<'a> {
    session: &'a InSession,
    path: &'a str,
    limits: &'a Limits,
    entries: usize,
    bytes: u64,
    zip: ZipWriter<Cursor<Vec<u8>>>,
}

impl Packing<'_> {
    async fn run(mut self) -> ApiResult<Vec<u8>> {
        // Directories to visit, each with its depth.
        let mut queue = vec![(String::new(), 0_usize)];
        while let Some((directory, depth)) = queue.pop() {
            if depth > self.limits.max_path_depth {
                return Err(too_large("the directory is nested too deeply"));
            }
            for entry in self.list(&directory).await? {
                let inner = match directory.as_str() {
                    "" => entry.name.clone(),
                    above => format!("{above}/{}", entry.name),
                };
                // Mounted packages of other skills.
                if inner == SKILLS {
                    continue;
                }
                match entry.kind {
                    FileKind::Directory => queue.push((inner, depth + 1)),
                    FileKind::File => self.file(&inner, &entry).await?,
                    FileKind::Symlink | FileKind::Other => {
                        return Err(ApiError::validation(format!(
                            "`{inner}` is neither a file nor a directory, and cannot be part of a skill"
                        ))
                        .hint("delete it, or replace it by a copy of the file"));
                    }
                }
            }
        }
        let archive = self.zip.finish();
        let archive = archive.map_err(|error| packing_failed(&error))?;
        Ok(archive.into_inner())
    }

    fn path_in_box(&self, inner: &str) -> String {
        match inner {
            "" => self.path.to_owned(),
            inner => format!("{}/{inner}", self.path.trim_end_matches('/')),
        }
    }

    async fn list(&mut self, directory: &str) -> ApiResult<Vec<FileEntry>> {
        let remaining = self.limits.max_entries.saturating_sub(self.entries);
        let found = self
            .session
            .list(&self.path_in_box(directory), remaining.max(1))
            .await?;
        if found.truncated || found.entries.len() > remaining {
            return Err(too_large(&format!(
                "the directory has more than {} entries",
                self.limits.max_entries
            )));
        }
        self.entries += found.entries.len();
        Ok(found.entries)
    }

    async fn file(&mut self, inner: &str, entry: &FileEntry) -> ApiResult<()> {
        let (file, _) = self.session.open(&self.path_in_box(inner)).await?;
        let available = self
            .limits
            .max_zip_bytes
            .min(self.limits.max_unpacked_bytes);
        let available = available.saturating_sub(self.bytes + OVERHEAD);
        let max_bytes = available.min(self.limits.max_file_bytes);
        // Do not trust the announced size: the box may be writing to the file.
        let content = read_part(file, 0, max_bytes + 1).await?;
        if content.len() as u64 > max_bytes {
            return Err(too_large(&format!(
                "with `{inner}` the skill is larger than the store allows"
            )));
        }
        self.bytes += content.len() as u64 + OVERHEAD;
        let mode = if entry.mode & 0o111 == 0 {
            0o644
        } else {
            0o755
        };
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .unix_permissions(mode);
        self.zip
            .start_file(inner, options)
            .map_err(|error| packing_failed(&error))?;
        self.zip
            .write_all(&content)
            .map_err(|error| packing_failed(&error))
    }
}

fn too_large(message: &str) -> ApiError {
    ApiError::new(ErrorCode::PayloadTooLarge, message)
        .hint("the limits are configured in `[skills.limits]`")
}

fn packing_failed(error: &(dyn std::error::Error + 'static)) -> ApiError {
    ApiError::internal("failed to pack the skill", error)
}
