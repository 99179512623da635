//! Types of the HTTP API: ids, requests, responses and error codes.
//!
//! No I/O and no async code.
#![forbid(unsafe_code)]

mod agent;
mod daemon;
mod error;
mod exec;
mod files;
mod id;
mod image;
mod isolation;
mod mcp;
mod parse;
mod process;
mod session;
mod skill;
mod spec;

pub use agent::{
    AgentErrorRecord, AgentGuidance, AgentPipeline, AgentQuery, AgentState, AgentStatus,
    KEPT_OUTPUT, ToolAnnotations, ToolAnswer, ToolCall, ToolInfo, ToolList, Unavailable,
};
pub use daemon::{
    BackendCapabilities, BackendInfo, BackendReport, DoctorFinding, DoctorReport, FindingState,
    HealthState, Healthz, LockableField, ProfileInfo, Readiness, Status, TokenInfo,
    ToolchainFinding,
};
pub use error::{ErrorBody, ErrorCode, ErrorDetail, McpErrorBody, McpErrorDetail};
pub use exec::stream::{
    ExecExit, ExecInput, ExecOutput, OutputChunk, STDERR_CHANNEL, STDOUT_CHANNEL, Signal,
    SignalRequest, TtySize,
};
pub use exec::{
    ExecDetail, ExecInfo, ExecKind, ExecResult, ExecState, ExecStatus, KilledExec,
    MAX_SHOWN_COMMAND_BYTES, Reason, StreamCapture,
};
pub use files::{
    DeletedFile, EditTextRequest, EditedText, FileEntry, FileKind, FileList, GlobMatches,
    GlobRequest, GrepMatch, GrepMatches, GrepRequest, MkdirRequest, MoveRequest, ReadTextRequest,
    TextSlice, WriteTextRequest, WrittenText,
};
pub use id::{IdError, ProcessId, SessionId};
pub use image::name::{ImageName, ImageNameError};
pub use image::{DeletedImage, ImageInfo, ImageList, ImageProgress, ImageSource, UnlistedBackend};
pub use isolation::{IsolationLabel, Mechanism, MissingMechanism, NetworkIsolation};
pub use mcp::edit::{Change, EditMcpBoxSettings, EditMcpServerRequest, EditMcpToolFilter};
pub use mcp::{
    CallMcpToolRequest, ImportMcpRequest, ImportedMcp, McpBoxSettings, McpLogs, McpNameError,
    McpPhase, McpProgress, McpRuntimeInfo, McpServerInfo, McpServerList, McpServerName,
    McpServerSpec, McpStatus, McpStep, McpTestResult, McpToolFilter, McpToolInfo, RemovedMcpServer,
    SkippedMcp,
};
pub use parse::rules::{FieldError, check_arguments, check_box_path};
pub use parse::{BodyError, from_json};
pub use process::{
    ProcessExit, ProcessInfo, ProcessLogs, ProcessSpec, ProcessStatus, RelayControl, RelayNews,
    SignalledProcess, StoppedProcess,
};
pub use session::{DeletedSession, Event, EventKind, SessionDetail, SessionInfo};
pub use skill::{
    CreateSkillRequest, DeletedSkill, MoveSkillFileRequest, MovedSkillFile, PlannedSkill,
    RegisterSkillRequest, SkillDetail, SkillFile, SkillFileList, SkillInfo, SkillIntake, SkillList,
    SkillProblem, SkillWarning, UpdateSkillRequest, WrittenSkillFile,
};
pub use spec::rules::{MAX_COMMAND_BYTES, MAX_MOUNTS, MAX_SKILLS};
pub use spec::{DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, MountMode, MountSpec, Network, SpecRequest};
