//! Boxes in memory with scripted responses. They record all requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use boxwood_agent::{
    Agent, AgentSettings, Answer, Begun, Boxes, BoxesError, Command, NoProgress, Running, ToolError,
};
use boxwood_api::{
    BackendInfo, BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode,
    ExecExit, ExecStatus, FileEntry, FileKind, FileList, GlobMatches, GlobRequest, GrepMatches,
    GrepRequest, ReadTextRequest, SessionId, SessionInfo, SkillDetail, SkillInfo, SpecRequest,
    Status, TextSlice, ToolCall, WriteTextRequest, WrittenText,
};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A request that the boxes received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BoxRequest {
    Status,
    Sessions,
    Skills,
    Open(Box<SpecRequest>),
    Exec(Box<SpecRequest>),
    Read(ReadTextRequest),
    Write(WriteTextRequest),
    Edit(EditTextRequest),
    Glob(GlobRequest),
    Grep(GrepRequest),
    List(String),
    Remove(String),
    WriteFile(String),
    Skill(String),
    WriteSkillFile(String, String),
    ReadSkillFile(String, String),
    RegisterSkill(String, CreateSkillRequest),
}

/// One thing a command does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Out(Bytes),
    Err(Bytes),
    Exit(i32),
    Ends(ExecExit),
    Breaks(BoxesError),
    Hangs,
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) requests: Vec<BoxRequest>,
    pub(crate) skills: BTreeMap<String, SkillDetail>,
    pub(crate) skill_files: BTreeMap<(String, String), Bytes>,
    /// Of every box.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Of the next commands, in order; a command without any exits with 0.
    pub(crate) commands: VecDeque<Vec<Step>>,
    pub(crate) notices: Vec<String>,
    /// Timeout that the runtime sets instead of the requested one.
    pub(crate) granted_sec: Option<u64>,
    pub(crate) backends: Vec<BackendReport>,
    pub(crate) backend: Option<String>,
    pub(crate) unusable: bool,
    /// Methods that never answer.
    pub(crate) hanging: BTreeSet<&'static str>,
    /// Methods that answer with an error.
    pub(crate) failing: BTreeMap<&'static str, BoxesError>,
    /// Commands that were dropped before they ended.
    pub(crate) killed: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Double {
    world: Arc<Mutex<World>>,
}

pub(crate) fn failure(code: ErrorCode, message: &str) -> BoxesError {
    BoxesError {
        code,
        message: message.to_owned(),
        hint: None,
        reached: true,
    }
}

pub(crate) fn unreached(message: &str) -> BoxesError {
    BoxesError {
        reached: false,
        ..failure(ErrorCode::BackendUnavailable, message)
    }
}

pub(crate) fn report(name: &str, available: bool) -> BackendReport {
    BackendReport {
        name: name.to_owned(),
        available,
        chosen: available,
        reason: (!available).then(|| format!("{name} is not installed")),
        fix: (!available).then(|| format!("install {name}")),
        capabilities: None,
        mechanisms: Vec::new(),
    }
}

pub(crate) fn exit(code: i32) -> ExecExit {
    ExecExit {
        exit_code: Some(code),
        status: ExecStatus::Completed,
        reason: None,
        duration_ms: 3,
        notices: Vec::new(),
    }
}

impl Double {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("not poisoned")
    }

    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(AgentSettings::default())
    }

    pub(crate) fn agent_with(&self, settings: AgentSettings) -> Agent {
        Agent::new(Arc::new(self.clone()), settings)
    }

    pub(crate) fn add_skill(&self, name: &str) {
        let skill = SkillDetail {
            skill: SkillInfo {
                name: name.to_owned(),
                display_name: format!("The {name}"),
                description: format!("about {name}"),
                created_at: Timestamp::UNIX_EPOCH,
                updated_at: Timestamp::UNIX_EPOCH,
                warnings: Vec::new(),
            },
            instructions: format!("How to use {name}."),
            entry_file: "SKILL.md".to_owned(),
        };
        self.world().skills.insert(name.to_owned(), skill);
    }

    pub(crate) fn next_command(&self, steps: Vec<Step>) {
        self.world().commands.push_back(steps);
    }

    pub(crate) fn requests(&self) -> Vec<BoxRequest> {
        self.world().requests.clone()
    }

    /// The specs of all commands so far.
    pub(crate) fn execs(&self) -> Vec<SpecRequest> {
        let requests = self.requests();
        let specs = requests.into_iter().filter_map(|request| match request {
            BoxRequest::Exec(spec) => Some(*spec),
            _ => None,
        });
        specs.collect()
    }

    async fn answer(&self, method: &'static str, request: BoxRequest) -> Answer<()> {
        let (hangs, fails) = {
            let mut world = self.world();
            world.requests.push(request);
            (
                world.hanging.contains(method),
                world.failing.get(method).cloned(),
            )
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        fails.map_or(Ok(()), Err)
    }
}

pub(crate) async fn call(
    agent: &Agent,
    tool: &str,
    arguments: Value,
    query: Value,
) -> Result<Map<String, Value>, ToolError> {
    let call: ToolCall = serde_json::from_value(json!({"arguments": arguments, "query": query}))
        .expect("a tool call");
    let answer = agent.call(tool, call, &NoProgress).await?;
    Ok(answer.result)
}

struct Script {
    steps: VecDeque<Step>,
    ended: bool,
    world: Arc<Mutex<World>>,
}

#[async_trait]
impl Command for Script {
    async fn next(&mut self) -> Answer<Running> {
        match self.steps.pop_front().unwrap_or(Step::Exit(0)) {
            Step::Out(bytes) => Ok(Running::Stdout(bytes)),
            Step::Err(bytes) => Ok(Running::Stderr(bytes)),
            Step::Exit(code) => {
                self.ended = true;
                Ok(Running::Exited(exit(code)))
            }
            Step::Ends(exit) => {
                self.ended = true;
                Ok(Running::Exited(exit))
            }
            Step::Breaks(error) => Err(error),
            Step::Hangs => std::future::pending().await,
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if !self.ended {
            self.world.lock().expect("not poisoned").killed += 1;
        }
    }
}

fn session(spec: &SpecRequest) -> SessionInfo {
    let value = json!({
        "session_id": spec.session_id, "backend_name": "memory", "backend_session_id": "1",
        "incarnation": 1, "profile": spec.profile, "image": "", "network": "off",
        "host_path": spec.host_path, "host_path_mode": "rw", "mount_path": "/workspace",
        "extra_mounts": [], "persistent": false, "cpus": 1.0, "memory_mb": 512, "pids_limit": 64,
        "read_only_rootfs": true, "workspace_quota_mb": 0,
        "created_at": "2026-01-01T00:00:00Z", "last_used_at": "2026-01-01T00:00:00Z",
        "isolation": {"backend": "memory", "network": "off", "in_force": []}
    });
    serde_json::from_value(value).expect("a session")
}

#[async_trait]
impl Boxes for Double {
    fn shares_filesystem(&self) -> bool {
        true
    }

    async fn status(&self) -> Answer<Status> {
        self.answer("status", BoxRequest::Status).await?;
        let world = self.world();
        Ok(Status {
            backend: BackendInfo {
                name: world.backend.clone(),
                available: !world.unusable,
            },
            active_sessions: 2,
            managed_processes: 0,
            session_ttl_sec: 300,
            warm_boxes: 0,
            frozen_sessions: 0,
        })
    }

    async fn backends(&self) -> Answer<Vec<BackendReport>> {
        let world = self.world();
        match world.failing.get("backends") {
            Some(failure) => Err(failure.clone()),
            None => Ok(world.backends.clone()),
        }
    }

    async fn sessions(&self) -> Answer<Vec<SessionInfo>> {
        self.answer("sessions", BoxRequest::Sessions).await?;
        let spec = SpecRequest {
            session_id: SessionId::new("person_a").ok(),
            profile: Some("default".to_owned()),
            ..SpecRequest::default()
        };
        Ok(vec![session(&spec)])
    }

    async fn get_or_create(&self, spec: SpecRequest) -> Answer<SessionInfo> {
        let info = session(&spec);
        self.answer("get_or_create", BoxRequest::Open(Box::new(spec)))
            .await?;
        Ok(info)
    }

    async fn exec(&self, spec: SpecRequest) -> Answer<Begun> {
        let session_id = spec.session_id.clone().expect("a session id");
        let requested_sec = spec.timeout_sec;
        self.answer("exec", BoxRequest::Exec(Box::new(spec)))
            .await?;
        let mut world = self.world();
        Ok(Begun {
            session_id,
            backend: "memory".to_owned(),
            notices: world.notices.clone(),
            timeout: Duration::from_secs(world.granted_sec.or(requested_sec).unwrap_or(30)),
            command: Box::new(Script {
                steps: world.commands.pop_front().unwrap_or_default().into(),
                ended: false,
                world: Arc::clone(&self.world),
            }),
        })
    }

    async fn read_text(&self, _id: &SessionId, request: ReadTextRequest) -> Answer<TextSlice> {
        self.answer("read_text", BoxRequest::Read(request.clone()))
            .await?;
        let world = self.world();
        let Some(content) = world.files.get(&request.path) else {
            let message = format!("File not found: {}", request.path);
            return Err(failure(ErrorCode::NotFound, &message));
        };
        let content = String::from_utf8_lossy(content).into_owned();
        let lines = content.lines().count() as u64;
        Ok(TextSlice {
            size: content.len() as u64,
            is_directory: false,
            is_binary: content.contains('\0'),
            first_line: request.offset.unwrap_or(1),
            lines,
            total_lines: Some(lines),
            truncated: request.limit.is_some_and(|limit| limit < lines),
            path: request.path,
            content,
        })
    }

    async fn read_bytes(
        &self,
        _id: &SessionId,
        path: &str,
        _from: u64,
        _most: u64,
    ) -> Answer<Bytes> {
        Ok(self
            .world()
            .files
            .get(path)
            .cloned()
            .unwrap_or_default()
            .into())
    }

    async fn write_text(&self, _id: &SessionId, request: WriteTextRequest) -> Answer<WrittenText> {
        self.answer("write_text", BoxRequest::Write(request.clone()))
            .await?;
        let size = request.content.len() as u64;
        let before = self
            .world()
            .files
            .insert(request.path.clone(), request.content.into_bytes());
        Ok(WrittenText {
            path: request.path,
            size,
            created: before.is_none(),
        })
    }

    async fn write_file(&self, _id: &SessionId, path: &str, content: Bytes) -> Answer<()> {
        self.answer("write_file", BoxRequest::WriteFile(path.to_owned()))
            .await?;
        self.world().files.insert(path.to_owned(), content.to_vec());
        Ok(())
    }

    async fn remove(&self, _id: &SessionId, path: &str) -> Answer<()> {
        self.answer("remove", BoxRequest::Remove(path.to_owned()))
            .await?;
        self.world().files.remove(path);
        Ok(())
    }

    async fn edit_text(&self, _id: &SessionId, request: EditTextRequest) -> Answer<EditedText> {
        self.answer("edit_text", BoxRequest::Edit(request.clone()))
            .await?;
        Ok(EditedText {
            path: request.path,
            replaced: 1,
            diff: "a diff".to_owned(),
            size: 9,
        })
    }

    async fn glob(&self, _id: &SessionId, request: GlobRequest) -> Answer<GlobMatches> {
        self.answer("glob", BoxRequest::Glob(request)).await?;
        Ok(GlobMatches {
            matches: vec!["/workspace/a.py".to_owned()],
            total: 1,
            truncated: false,
        })
    }

    async fn grep(&self, _id: &SessionId, request: GrepRequest) -> Answer<GrepMatches> {
        self.answer("grep", BoxRequest::Grep(request)).await?;
        Ok(GrepMatches {
            matches: vec![boxwood_api::GrepMatch {
                file: "/workspace/a.py".to_owned(),
                line: 3,
                content: "x = 1".to_owned(),
            }],
            total: 1,
            truncated: false,
            files_searched: 4,
        })
    }

    async fn list(&self, _id: &SessionId, path: &str) -> Answer<FileList> {
        self.answer("list", BoxRequest::List(path.to_owned()))
            .await?;
        let world = self.world();
        let below = format!("{path}/");
        let entries: Vec<FileEntry> = world
            .files
            .iter()
            .filter_map(|(file, content)| {
                let name = file.strip_prefix(&below)?;
                Some(FileEntry {
                    name: name.to_owned(),
                    path: file.clone(),
                    kind: FileKind::File,
                    size: content.len() as u64,
                    mode: 0o644,
                    modified_at: Timestamp::UNIX_EPOCH,
                    symlink_target: None,
                })
            })
            .collect();
        if entries.is_empty() {
            return Err(failure(ErrorCode::NotFound, "no such directory"));
        }
        Ok(FileList {
            path: path.to_owned(),
            entries,
            truncated: false,
        })
    }

    async fn skills(&self) -> Answer<Vec<SkillInfo>> {
        self.answer("skills", BoxRequest::Skills).await?;
        let world = self.world();
        Ok(world
            .skills
            .values()
            .map(|detail| detail.skill.clone())
            .collect())
    }

    async fn skill(&self, name: &str) -> Answer<Option<SkillDetail>> {
        self.answer("skill", BoxRequest::Skill(name.to_owned()))
            .await?;
        Ok(self.world().skills.get(name).cloned())
    }

    async fn write_skill_file(&self, name: &str, path: &str, content: Bytes) -> Answer<()> {
        let key = (name.to_owned(), path.to_owned());
        let request = BoxRequest::WriteSkillFile(key.0.clone(), key.1.clone());
        self.answer("write_skill_file", request).await?;
        self.world().skill_files.insert(key, content);
        Ok(())
    }

    async fn read_skill_file(&self, name: &str, path: &str) -> Answer<Bytes> {
        let key = (name.to_owned(), path.to_owned());
        let request = BoxRequest::ReadSkillFile(key.0.clone(), key.1.clone());
        self.answer("read_skill_file", request).await?;
        self.world()
            .skill_files
            .get(&key)
            .cloned()
            .ok_or_else(|| failure(ErrorCode::NotFound, "no such file in the package"))
    }

    async fn register_skill(
        &self,
        _id: &SessionId,
        path: &str,
        request: CreateSkillRequest,
    ) -> Answer<SkillDetail> {
        let request = BoxRequest::RegisterSkill(path.to_owned(), request);
        self.answer("register_skill", request).await?;
        self.add_skill("made");
        Ok(self.world().skills["made"].clone())
    }
}
