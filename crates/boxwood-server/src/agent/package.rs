//! Registers a directory of a box as a skill.
//!
//! Files may change meanwhile. They are packed into an archive and installed like an upload, so
//! that the same rules apply. Symlinks are refused, because their targets are inside the box.

use std::io::{Cursor, Read as _, Write as _};
use std::sync::Arc;

use boxwood_api::{CreateSkillRequest, ErrorCode, FileEntry, FileKind, SessionId, SkillDetail};
use boxwood_session::{FileAnswer, FileCall, OpenFor, Sessions};
use boxwood_skills::{Limits, Skill, SkillPatch, SkillStore};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::http::{
    ApiError, ApiResult, UploadGate, ask_store, install_package, skill_detail, skill_refusal,
    unexpected_answer,
};

/// Directory of mounted skills, below the workspace.
const SKILLS: &str = ".skills";

/// Archive overhead per file, rounded up.
const OVERHEAD: u64 = 256;

/// A directory in a box.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) sessions: &'a Sessions,
    pub(crate) session_id: &'a SessionId,
    pub(crate) path: &'a str,
}

pub(crate) async fn register(
    from: Source<'_>,
    store: &SkillStore,
    uploads: &Arc<UploadGate>,
    wish: CreateSkillRequest,
) -> ApiResult<SkillDetail> {
    let _permit = uploads.permit().await?;
    // An upload permit, because a whole archive is held in memory.
    let archive = Box::pin(Packing::new(from, store.limits()).run()).await?;
    let uploads = Arc::clone(uploads);
    let place = from.path.to_owned();
    ask_store(store, move |store| {
        // Holds the lock, so that checking names and installing is atomic.
        let _write_lock = uploads.lock();
        let name = Some(wish.name.trim().to_owned()).filter(|name| !name.is_empty());
        let skill = install_package(store, &archive, name, &place)?;
        describe(store, skill, wish).map(skill_detail)
    })
    .await
}

/// Overrides name and description in the `SKILL.md`.
fn describe(store: &SkillStore, skill: Skill, wish: CreateSkillRequest) -> ApiResult<Skill> {
    let patch = SkillPatch {
        display_name: wish.display_name,
        description: wish.description,
        instructions: wish.instructions,
        ..SkillPatch::default()
    };
    if patch == SkillPatch::default() {
        return Ok(skill);
    }
    store.update(&skill.name, &patch).map_err(|error| {
        // Undo the installation if the override failed.
        if let Err(undo) = store.delete(&skill.name) {
            tracing::warn!(skill = skill.name, error = %undo, "failed to undo a partial registration; the skill stays in the store");
        }
        skill_refusal(&error)
    })
}

/// Walks through the directory.
struct Packing<'a> {
    from: Source<'a>,
    limits: &'a Limits,
    entries: usize,
    bytes: u64,
    zip: ZipWriter<Cursor<Vec<u8>>>,
}

impl<'a> Packing<'a> {
    fn new(from: Source<'a>, limits: &'a Limits) -> Self {
        Self {
            from,
            limits,
            entries: 0,
            bytes: 0,
            zip: ZipWriter::new(Cursor::new(Vec::new())),
        }
    }

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

    async fn call(&self, call: FileCall) -> ApiResult<FileAnswer> {
        Ok(self.from.sessions.file(self.from.session_id, call).await?)
    }

    fn place(&self, inner: &str) -> String {
        match inner {
            "" => self.from.path.to_owned(),
            inner => format!("{}/{inner}", self.from.path.trim_end_matches('/')),
        }
    }

    async fn list(&mut self, directory: &str) -> ApiResult<Vec<FileEntry>> {
        let left = self.limits.max_entries.saturating_sub(self.entries);
        let call = FileCall::List {
            path: self.place(directory),
            limit: left.max(1),
        };
        match self.call(call).await? {
            FileAnswer::Entries { entries, truncated } if !truncated && entries.len() <= left => {
                self.entries += entries.len();
                Ok(entries)
            }
            FileAnswer::Entries { .. } => Err(too_large(&format!(
                "the directory has more than {} entries",
                self.limits.max_entries
            ))),
            other => Err(unexpected_answer("list", &other)),
        }
    }

    async fn file(&mut self, inner: &str, entry: &FileEntry) -> ApiResult<()> {
        let call = FileCall::Open {
            path: self.place(inner),
            how: OpenFor::Read,
        };
        let file = match self.call(call).await? {
            FileAnswer::Opened { file, .. } => file,
            other => return Err(unexpected_answer("open", &other)),
        };
        let room = self
            .limits
            .max_zip_bytes
            .min(self.limits.max_unpacked_bytes);
        let room = room.saturating_sub(self.bytes + OVERHEAD);
        let most = room.min(self.limits.max_file_bytes);
        // Do not trust the announced size: the box may be writing to the file.
        let content = tokio::task::spawn_blocking(move || {
            let mut content = Vec::new();
            file.take(most + 1).read_to_end(&mut content)?;
            Ok::<_, std::io::Error>(content)
        })
        .await
        .map_err(|error| ApiError::internal("failed to read a file of the box", &error))?
        .map_err(|error| ApiError::internal("failed to read a file of the box", &error))?;
        if content.len() as u64 > most {
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

fn too_large(words: &str) -> ApiError {
    ApiError::new(ErrorCode::PayloadTooLarge, words)
        .hint("the limits are configured in `[skills.limits]`")
}

fn packing_failed(error: &(dyn std::error::Error + 'static)) -> ApiError {
    ApiError::internal("failed to pack the skill", error)
}
