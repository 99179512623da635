//! A directory in a box becomes a skill of the store.
//!
//! Comes in: a path in a box, whose files somebody may be changing. Goes out: a skill. The files travel
//! as an archive through the store's own door for archives, so that every rule of it holds for them.
//! Never here: links. What one leads to is another matter inside the box than in the store.

use std::io::{Cursor, Read as _, Write as _};
use std::sync::Arc;

use boxwood_api::{CreateSkillRequest, ErrorCode, FileEntry, FileKind, SessionId, SkillDetail};
use boxwood_session::{FileAnswer, FileCall, OpenFor, Sessions};
use boxwood_skills::{Limits, Skill, SkillPatch, SkillStore};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::http::{
    ApiError, ApiResult, SkillDoor, ask_store, install_package, skill_detail, skill_refusal,
    unexpected_answer,
};

/// Where a box has its skills, below its workspace.
const SKILLS: &str = ".skills";

/// What an archive says about each of its files, with room to spare.
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
    door: &Arc<SkillDoor>,
    wish: CreateSkillRequest,
) -> ApiResult<SkillDetail> {
    let _place = door.place().await?;
    // It has room for a whole archive's state, and few come this way.
    let archive = Box::pin(Packing::new(from, store.limits()).run()).await?;
    let door = Arc::clone(door);
    let place = from.path.to_owned();
    ask_store(store, move |store| {
        // Looking for taken names and installing are one step among those who come this way.
        let _turn = door.turn();
        let name = Some(wish.name.trim().to_owned()).filter(|name| !name.is_empty());
        let skill = install_package(store, &archive, name, &place)?;
        describe(store, skill, wish).map(|skill| skill_detail(store, skill))
    })
    .await
}

/// Puts what the caller says about the skill in the place of what its `SKILL.md` says.
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
        // Half of what was asked is not what was asked.
        if let Err(undo) = store.delete(&skill.name) {
            tracing::warn!(skill = skill.name, error = %undo, "a half registered skill stays in the store");
        }
        skill_refusal(&error)
    })
}

/// One walk through the directory.
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
        // Directories below the root, each with its depth.
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
                // The packages of other skills, which are mounted there.
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
                        .hint("remove it, or put a copy of the file in its place"));
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
        // Read by what comes, not by what was announced: the box may be writing to it.
        let content = tokio::task::spawn_blocking(move || {
            let mut content = Vec::new();
            file.take(most + 1).read_to_end(&mut content)?;
            Ok::<_, std::io::Error>(content)
        })
        .await
        .map_err(|error| ApiError::internal("a file of the box could not be read", &error))?
        .map_err(|error| ApiError::internal("a file of the box could not be read", &error))?;
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
        .hint("the operator's bounds are in `[skills.limits]`")
}

fn packing_failed(error: &(dyn std::error::Error + 'static)) -> ApiError {
    ApiError::internal("the skill could not be packed", error)
}
