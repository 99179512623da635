//! Types of the HTTP API: ids, requests, responses and error codes.
//!
//! No I/O and no async code.
#![forbid(unsafe_code)]

mod agent;
mod backend;
mod coerce;
mod doctor;
mod error;
mod event;
mod exec;
mod exec_info;
mod field;
mod fields;
mod file;
mod file_request;
mod file_tool;
mod id;
mod image;
mod isolation;
mod json;
mod mcp;
mod mcp_edit;
mod process;
mod profile;
mod reason;
mod relay;
mod session;
mod skill;
mod spec;
mod spec_json;
mod spec_rules;
mod status;
mod stream;
mod token;

pub use agent::{
    AgentErrorRecord, AgentGuidance, AgentPipeline, AgentQuery, AgentState, AgentStatus,
    KEPT_OUTPUT, ToolAnnotations, ToolAnswer, ToolCall, ToolInfo, ToolList, Unavailable,
};
pub use backend::{BackendCapabilities, BackendReport};
pub use doctor::{DoctorFinding, DoctorReport, FindingState, ToolchainFinding};
pub use error::{ErrorBody, ErrorCode, ErrorDetail, McpErrorBody, McpErrorDetail};
pub use event::{Event, EventKind};
pub use exec::{ExecResult, ExecStatus, StreamCapture};
pub use exec_info::{
    ExecDetail, ExecInfo, ExecKind, ExecState, KilledExec, MAX_SHOWN_COMMAND_BYTES,
};
pub use field::{FieldError, check_arguments, check_box_path};
pub use file::{FileEntry, FileKind};
pub use file_request::{DeletedFile, FileList, MkdirRequest, MoveRequest};
pub use file_tool::{
    EditTextRequest, EditedText, GlobMatches, GlobRequest, GrepMatch, GrepMatches, GrepRequest,
    ReadTextRequest, TextSlice, WriteTextRequest, WrittenText,
};
pub use id::{IdError, ProcessId, SessionId};
pub use image::{
    DeletedImage, ImageInfo, ImageList, ImageName, ImageNameError, ImageProgress, ImageSource,
    UnlistedBackend,
};
pub use isolation::{IsolationLabel, Mechanism, MissingMechanism, NetworkIsolation};
pub use json::{BodyError, from_json};
pub use mcp::{
    CallMcpToolRequest, ImportMcpRequest, ImportedMcp, McpBoxSettings, McpLogs, McpNameError,
    McpPhase, McpProgress, McpRuntimeInfo, McpServerInfo, McpServerList, McpServerName,
    McpServerSpec, McpStatus, McpStep, McpTestResult, McpToolFilter, McpToolInfo, RemovedMcpServer,
    SkippedMcp,
};
pub use mcp_edit::{Change, EditMcpBoxSettings, EditMcpServerRequest, EditMcpToolFilter};
pub use process::{
    ProcessInfo, ProcessLogs, ProcessSpec, ProcessStatus, SignalledProcess, StoppedProcess,
};
pub use profile::{LockableField, ProfileInfo};
pub use reason::Reason;
pub use relay::{ProcessExit, RelayControl, RelayNews};
pub use session::{DeletedSession, SessionDetail, SessionInfo};
pub use skill::{
    CreateSkillRequest, DeletedSkill, MoveSkillFileRequest, MovedSkillFile, PlannedSkill,
    RegisterSkillRequest, SkillDetail, SkillFile, SkillFileList, SkillInfo, SkillIntake, SkillList,
    SkillProblem, SkillWarning, UpdateSkillRequest, WrittenSkillFile,
};
pub use spec::{DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, MountMode, MountSpec, Network, SpecRequest};
pub use spec_rules::{MAX_COMMAND_BYTES, MAX_MOUNTS, MAX_SKILLS};
pub use status::{BackendInfo, HealthState, Healthz, Readiness, Status};
pub use stream::{
    ExecExit, ExecInput, ExecOutput, OutputChunk, STDERR_CHANNEL, STDOUT_CHANNEL, Signal,
    SignalRequest, TtySize,
};
pub use token::TokenInfo;
