//! Published servers that write beside their own code, where nothing can be written here.
//!
//! Comes in: the packages of a command. Goes out: the server's own variable that sends its file to the
//! workspace instead. Never here: what the user has set, which always wins.

use super::asked::Launcher;
use super::package::NpmPackage;

pub(super) struct Habit {
    package: &'static str,
    pub(super) variable: &'static str,
    pub(super) place: &'static str,
}

const HABITS: [Habit; 1] = [Habit {
    package: "@modelcontextprotocol/server-memory",
    variable: "MEMORY_FILE_PATH",
    place: "/workspace/memory.jsonl",
}];

pub(super) fn of(launcher: &Launcher) -> Option<&'static Habit> {
    let Launcher::NodeTool(tool) = launcher else {
        return None;
    };
    HABITS.iter().find(|habit| {
        tool.packages.iter().any(
            |package| matches!(package, NpmPackage::Registry { name, .. } if name == habit.package),
        )
    })
}

impl Habit {
    /// What a user would otherwise find out too late.
    pub(super) fn notice(&self) -> String {
        let Self {
            variable, place, ..
        } = self;
        format!(
            "it keeps its data in `{place}` ({variable}), which goes with its box; give it a `host_path` \
             with `host_path_mode` `rw` to keep them"
        )
    }
}
