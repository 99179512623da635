//! Names, descriptions and JSON schemas of the tools.
//!
//! Schemas and argument checks come from one table of fields, so that they cannot disagree.

use boxwood_api::{MAX_COMMAND_BYTES, ToolAnnotations, ToolInfo};
use serde_json::{Map, Value, json};

use crate::paths::WORKSPACE;
use crate::results;

/// How long a command may run that does not say, in the built-in profiles.
pub const DEFAULT_TIMEOUT_SEC: u64 = 30;

pub(crate) const MOST_PATH_BYTES: usize = 4_095;
pub(crate) const MOST_PATTERN_BYTES: usize = 64 * 1024;
pub(crate) const MOST_CONTENT_BYTES: usize = 16 * 1024 * 1024;
pub(crate) const MOST_WORD_BYTES: usize = 4_096;
pub(crate) const MOST_INSTRUCTION_BYTES: usize = 1024 * 1024;

/// The largest number that every JSON reader takes whole.
pub(crate) const MOST_COUNT: u64 = (1 << 53) - 1;

/// Room for environment variables: how many, how long one may be (the kernel's limit), and all of them.
pub(crate) const MOST_VARIABLES: usize = 1_024;
pub(crate) const MOST_VALUE_BYTES: usize = 131_071;
pub(crate) const MOST_ENVIRONMENT_BYTES: usize = 1024 * 1024;

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    title: &'static str,
    description: &'static str,
    pub(crate) fields: &'static [Field],
    annotations: ToolAnnotations,
    output: fn() -> Value,
}

pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) needed: Needed,
    description: &'static str,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text {
        least: usize,
        most: usize,
    },
    Count,
    Flag,
    /// Names and texts.
    Environment,
}

#[derive(Clone, Copy)]
pub(crate) enum Needed {
    Yes,
    No,
    /// What it is when left out.
    Text(&'static str),
    /// What the box's profile says.
    Timeout,
    Flag(bool),
    Nothing,
}

const LOOKS: ToolAnnotations = ToolAnnotations {
    read_only: true,
    destructive: false,
    idempotent: true,
    open_world: false,
};

const PATH: Kind = text(1, MOST_PATH_BYTES);
const WORD: Kind = text(0, MOST_WORD_BYTES);

const fn text(least: usize, most: usize) -> Kind {
    Kind::Text { least, most }
}

const fn field(name: &'static str, kind: Kind, needed: Needed, description: &'static str) -> Field {
    Field {
        name,
        kind,
        needed,
        description,
    }
}

pub(crate) const TOOLS: &[Tool] = &[
    Tool {
        name: "exec",
        title: "Run a command",
        description: "Run a shell command in an isolated Linux box that belongs to this conversation. Use it for exact \
calculation, data processing, and to run code or tests. The command is run by `/bin/sh -c`; files below /workspace \
stay between calls, environment variables and the working directory do not. Standard output and standard error come \
back apart; a long one is cut in the middle, and the notices then say where the whole of it can be read. A command \
that takes longer than timeout_sec is killed. The box may have no network.",
        fields: &[
            field(
                "command",
                text(1, MAX_COMMAND_BYTES),
                Needed::Yes,
                "The shell command. Several lines are fine.",
            ),
            field(
                "workdir",
                PATH,
                Needed::Text(WORKSPACE),
                "An absolute directory in the box in which the command starts.",
            ),
            field(
                "timeout_sec",
                Kind::Count,
                Needed::Timeout,
                "Seconds after which the command is killed. Left out, the box's profile says how many. The operator's \
maximum applies.",
            ),
            field(
                "env",
                Kind::Environment,
                Needed::Nothing,
                "Further environment variables, names to texts.",
            ),
            field(
                "description",
                WORD,
                Needed::No,
                "What the command is for, in a few words. It is only logged.",
            ),
        ],
        annotations: ToolAnnotations {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: true,
        },
        output: results::exec,
    },
    Tool {
        name: "read",
        title: "Read a file",
        description: "Read a text file below /workspace, or list a directory there. Give offset and limit to read a part \
of a long file by its lines. Files of visible skills are below /workspace/.skills/<skill-name>. The whole of a cut \
command output can be read where the notice of exec said. A binary file is reported as such, without its content.",
        fields: &[
            field(
                "path",
                PATH,
                Needed::Yes,
                "An absolute path, such as /workspace/notes.txt.",
            ),
            field(
                "offset",
                Kind::Count,
                Needed::No,
                "The first line wanted, counted from 1.",
            ),
            field("limit", Kind::Count, Needed::No, "At most so many lines."),
        ],
        annotations: LOOKS,
        output: results::read,
    },
    Tool {
        name: "write",
        title: "Write a file",
        description: "Write a text file below /workspace, with the directories above it. What was in the file is replaced; \
to change a part of a file, use edit. A skill's files can be written once the skill is activated.",
        fields: &[
            field(
                "path",
                PATH,
                Needed::Yes,
                "An absolute path, such as /workspace/src/main.py.",
            ),
            field(
                "content",
                text(0, MOST_CONTENT_BYTES),
                Needed::Yes,
                "The whole text of the file.",
            ),
        ],
        annotations: ToolAnnotations {
            read_only: false,
            destructive: true,
            idempotent: true,
            open_world: false,
        },
        output: results::write,
    },
    Tool {
        name: "edit",
        title: "Edit a file",
        description: "Replace an exact text in a file below /workspace. old_string has to occur exactly once, with its \
spaces and line breaks as they stand in the file; take in neighbouring lines to make it unique, or set replace_all. \
The answer shows what changed as a diff. Read the file first.",
        fields: &[
            field(
                "path",
                PATH,
                Needed::Yes,
                "An absolute path, such as /workspace/src/main.py.",
            ),
            field(
                "old_string",
                text(1, MOST_CONTENT_BYTES),
                Needed::Yes,
                "The text to replace, exactly as it is in the file.",
            ),
            field(
                "new_string",
                text(0, MOST_CONTENT_BYTES),
                Needed::Yes,
                "The text that takes its place. Empty removes it.",
            ),
            field(
                "replace_all",
                Kind::Flag,
                Needed::Flag(false),
                "Replace every occurrence, not the only one.",
            ),
        ],
        annotations: ToolAnnotations {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: false,
        },
        output: results::edit,
    },
    Tool {
        name: "glob",
        title: "Find files",
        description: "Find files below /workspace by name, those changed last first, at most 100. A pattern without a slash \
fits in every directory: *.py finds all Python files, src/**/*.rs those below src. What .gitignore names is left out, \
and so are directories such as .git, node_modules and .venv.",
        fields: &[
            field(
                "pattern",
                text(1, MOST_PATTERN_BYTES),
                Needed::Yes,
                "A glob, such as *.md or src/**/*.rs.",
            ),
            field(
                "path",
                PATH,
                Needed::Text(WORKSPACE),
                "The absolute directory in which to look.",
            ),
        ],
        annotations: LOOKS,
        output: results::glob,
    },
    Tool {
        name: "grep",
        title: "Search in files",
        description: "Search files below /workspace for lines that fit a regular expression, at most 200 lines. Narrow it \
with include (a glob) or file_type. What .gitignore names is left out, and so are binary files and directories such as \
.git, node_modules and .venv.",
        fields: &[
            field(
                "pattern",
                text(1, MOST_PATTERN_BYTES),
                Needed::Yes,
                "A regular expression, such as def \\w+\\(. It is matched against one line at a time.",
            ),
            field(
                "path",
                PATH,
                Needed::Text(WORKSPACE),
                "The absolute directory, or the one file, in which to search.",
            ),
            field(
                "include",
                text(1, MOST_PATTERN_BYTES),
                Needed::No,
                "Only files that fit this glob, such as *.py.",
            ),
            field(
                "file_type",
                text(1, MOST_WORD_BYTES),
                Needed::No,
                "Only files of this type as ripgrep names them, such as py, rust or md.",
            ),
            field(
                "ignore_case",
                Kind::Flag,
                Needed::Flag(false),
                "Let upper and lower case be the same.",
            ),
        ],
        annotations: LOOKS,
        output: results::grep,
    },
    Tool {
        name: "activate",
        title: "Activate a skill",
        description: "Load a skill: its instructions come back, and from then on its package can be used at \
/workspace/.skills/<skill-name>. Call it before you follow a skill or run one of its programs.",
        fields: &[field(
            "skill_name",
            text(1, MOST_WORD_BYTES),
            Needed::Yes,
            "The skill's name, as the list of available skills has it.",
        )],
        // The conversation may change the skill from then on.
        annotations: ToolAnnotations {
            read_only: false,
            ..LOOKS
        },
        output: results::activate,
    },
    Tool {
        name: "register_skill",
        title: "Register a skill",
        description: "Make a skill of a directory below /workspace that holds a SKILL.md. It is copied into the skill store, \
where every conversation that may see it can activate it. What is given here wins over what SKILL.md says.",
        fields: &[
            field(
                "path",
                PATH,
                Needed::Yes,
                "The absolute directory, such as /workspace/my-skill.",
            ),
            field(
                "name",
                WORD,
                Needed::No,
                "The skill's name, such as csv-report.",
            ),
            field(
                "display_name",
                WORD,
                Needed::No,
                "The name that people see.",
            ),
            field(
                "description",
                WORD,
                Needed::No,
                "What the skill is for and when to use it.",
            ),
            field(
                "instructions",
                text(0, MOST_INSTRUCTION_BYTES),
                Needed::No,
                "The instructions, instead of those in SKILL.md.",
            ),
        ],
        annotations: ToolAnnotations {
            read_only: false,
            destructive: false,
            idempotent: false,
            open_world: false,
        },
        output: results::register_skill,
    },
];

/// All tools, in the order in which they are best shown.
pub fn tools() -> Vec<ToolInfo> {
    tools_for(Some(DEFAULT_TIMEOUT_SEC))
}

/// All tools, where a command may run so long by default, if that is known.
pub fn tools_for(timeout_sec: Option<u64>) -> Vec<ToolInfo> {
    TOOLS
        .iter()
        .map(|tool| ToolInfo {
            name: tool.name.to_owned(),
            title: tool.title.to_owned(),
            description: tool.description.to_owned(),
            input_schema: input_schema(tool, timeout_sec),
            output_schema: (tool.output)(),
            annotations: tool.annotations,
        })
        .collect()
}

/// A tool as OpenAI's function calling takes it.
pub fn openai(tool: &ToolInfo) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
        },
    })
}

fn input_schema(tool: &Tool, timeout_sec: Option<u64>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in tool.fields {
        properties.insert(field.name.to_owned(), field_schema(field, timeout_sec));
        if matches!(field.needed, Needed::Yes) {
            required.push(field.name);
        }
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn field_schema(field: &Field, timeout_sec: Option<u64>) -> Value {
    let mut schema = match field.kind {
        // Characters here, bytes when checked: the schema has no word for bytes.
        Kind::Text { least: 0, most } => json!({"type": "string", "maxLength": most}),
        Kind::Text { least, most } => {
            json!({"type": "string", "minLength": least, "maxLength": most})
        }
        Kind::Count => json!({"type": "integer", "minimum": 1, "maximum": MOST_COUNT}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Environment => json!({
            "type": "object",
            "maxProperties": MOST_VARIABLES,
            "additionalProperties": {"type": "string", "maxLength": MOST_VALUE_BYTES},
        }),
    };
    schema["description"] = json!(field.description);
    match field.needed {
        Needed::Yes | Needed::No => {}
        Needed::Text(value) => schema["default"] = json!(value),
        Needed::Timeout => {
            if let Some(timeout_sec) = timeout_sec {
                schema["default"] = json!(timeout_sec);
            }
        }
        Needed::Flag(value) => schema["default"] = json!(value),
        Needed::Nothing => schema["default"] = json!({}),
    }
    schema
}
