//! The text about the box for the system prompt.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use boxwood_api::{AgentGuidance, SkillInfo};

use crate::AgentSettings;

const EXEC: &str = "You have an isolated Linux box of your own. Call `exec` for exact calculation, for statistics and \
the parsing of structured data, and to run code, instead of working such things out in your head. Unless the user asks \
for the program, do not show it: give the result and what it means.";

const MOUNTED: &str = "The user's files are at /workspace in the box and stay there. Work on them with `read`, `write`, \
`edit`, `glob`, `grep` and `exec`, with absolute paths below /workspace.";

const PRIVATE: &str = "Files below /workspace in the box stay between calls for as long as the box lives. Use `read`, \
`write`, `edit`, `glob` and `grep` for them, with absolute paths below /workspace.";

const SKILLS: &str = "Skills hold instructions and programs for certain tasks. When one fits the task, call `activate` \
with its name before you start, then follow what it says; its files are at /workspace/.skills/<name>.";

/// Longer display names and descriptions are cut.
const MAX_DESCRIPTION_CHARS: usize = 1_024;

/// The guidance for a conversation that may see these skills.
pub fn guidance<'a>(
    settings: &AgentSettings,
    skills: impl IntoIterator<Item = &'a SkillInfo>,
) -> AgentGuidance {
    let mut text = match &settings.guidance {
        Some(configured) => configured.clone(),
        None if settings.default_workspace.is_some() => format!("{EXEC}\n\n{MOUNTED}"),
        None => format!("{EXEC}\n\n{PRIVATE}"),
    };
    let skills: BTreeMap<&str, &SkillInfo> = skills
        .into_iter()
        .map(|skill| (skill.name.as_str(), skill))
        .collect();
    if !skills.is_empty() {
        let _ = write!(text, "\n\n{SKILLS}\n\nAvailable Skills:");
    }
    for (name, skill) in &skills {
        let _ = write!(text, "\n- {name}");
        if !skill.display_name.is_empty() && skill.display_name != *name {
            let _ = write!(text, " ({})", line(&skill.display_name));
        }
        if !skill.description.is_empty() {
            let _ = write!(text, ": {}", line(&skill.description));
        }
    }
    AgentGuidance {
        text,
        skills: skills
            .into_iter()
            .map(|(name, skill)| (name.to_owned(), skill.description.clone()))
            .collect(),
    }
}

/// On one line, so that a description cannot look like a heading of the guidance.
fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    crate::output::truncate(&words.join(" "), MAX_DESCRIPTION_CHARS).text
}
