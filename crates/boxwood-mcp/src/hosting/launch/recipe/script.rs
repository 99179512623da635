//! Assembles an install script from the shell functions in `scripts/`, and its cache key.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use boxwood_api::{DEFAULT_MOUNT_PATH, McpServerSpec};

use super::key::Key;
use super::shell_quote::{quote, quote_all};
use crate::hosting::launch::workspace::paths::real;
use crate::hosting::launch::{CACHE, HostDirectory, InstallPlan, SOURCES};

const BASE: &str = include_str!("scripts/base.sh");
const PYTHON: &str = include_str!("scripts/python.sh");
const NODE: &str = include_str!("scripts/node.sh");

/// Prefixes and names of variables for installers. Of the server's own variables, an installer gets only these.
const INSTALLER_PREFIXES: [&str; 3] = ["uv_", "pip_", "npm_config_"];
const INSTALLER_NAMES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "ssl_cert_file",
    "requests_ca_bundle",
    "node_extra_ca_certs",
    "git_ssl_cainfo",
];

pub(crate) struct Recipe {
    pub(crate) key: Key,
    what: String,
    steps: Vec<String>,
    parts: Vec<HostDirectory>,
    contents: Vec<PathBuf>,
    pub(crate) has_node_modules: bool,
}

impl Recipe {
    pub(crate) fn new(kind: &str, what: &str) -> Self {
        Self {
            key: Key::new(kind),
            what: what.to_owned(),
            steps: Vec::new(),
            parts: Vec::new(),
            contents: Vec::new(),
            has_node_modules: false,
        }
    }

    /// Adds raw shell code.
    pub(crate) fn line(&mut self, line: impl Into<String>) {
        self.steps.push(line.into());
    }

    /// Calls a shell function with quoted arguments.
    pub(crate) fn call<Word: AsRef<str>>(
        &mut self,
        function: &str,
        words: impl IntoIterator<Item = Word>,
    ) {
        self.steps.push(call(function, words));
    }

    /// Makes a host directory visible to the installer. Its path becomes part of the key, because its code runs
    /// during the install and must not affect other directories.
    pub(crate) fn show(&mut self, part: HostDirectory) {
        let is_inside = |inner: &HostDirectory, outer: &HostDirectory| {
            Path::new(&inner.name).starts_with(&outer.name)
        };
        if self.parts.iter().any(|shown| is_inside(&part, shown)) {
            return;
        }
        self.key.add("part", &part.name);
        self.key.add_bytes("from", part.real.as_os_str().as_bytes());
        self.parts.retain(|shown| !is_inside(shown, &part));
        self.parts.push(part);
    }

    /// Makes the contents of a host path part of the key. A link to another directory is ignored, because the
    /// installer does not see its target.
    pub(crate) fn add_contents(&mut self, path: &Path) {
        let path = real(path);
        let is_shown = self.parts.iter().any(|part| path.starts_with(&part.real));
        if is_shown && !self.contents.contains(&path) {
            self.contents.push(path);
        }
    }

    pub(crate) fn finish(mut self, spec: &McpServerSpec, tools: &str) -> InstallPlan {
        let env = installer_environment(spec);
        self.key.add("tools", tools);
        for (name, value) in &env {
            self.key.add(name, value);
        }
        InstallPlan {
            script: self.script(CACHE),
            basis: self.key.finish(),
            env,
            what: self.what,
            parts: self.parts,
            contents: self.contents,
            has_node_modules: self.has_node_modules,
        }
    }

    /// Tests use another cache path.
    pub(crate) fn script(&self, cache: &str) -> String {
        let mut script = BASE.replace("@CACHE@", &quote(cache));
        script.push_str(PYTHON);
        script.push_str(NODE);
        let copies = self.parts.iter().map(|part| {
            let at = |root: &str| format!("{root}/{}", part.name);
            call("copy_sources", [at(SOURCES), at(DEFAULT_MOUNT_PATH)])
        });
        for step in copies.chain(self.steps.iter().cloned()) {
            script.push_str(&step);
            script.push('\n');
        }
        script
    }
}

fn call<Word: AsRef<str>>(function: &str, words: impl IntoIterator<Item = Word>) -> String {
    let words = quote_all(words);
    if words.is_empty() {
        function.to_owned()
    } else {
        format!("{function} {words}")
    }
}

fn installer_environment(spec: &McpServerSpec) -> BTreeMap<String, String> {
    let mut env = spec.settings.env.clone();
    let is_for_installers = |name: &str| {
        let name = name.to_ascii_lowercase();
        INSTALLER_NAMES.contains(&name.as_str())
            || INSTALLER_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    for (name, value) in &spec.env {
        if is_for_installers(name) {
            env.insert(name.clone(), value.clone());
        }
    }
    env
}
