//! Puts an install script together.
//!
//! Comes in: steps in words of the shell functions in `scripts/`. Goes out: one script for `/bin/sh`, and
//! the name of what it makes. Never here: which steps a launcher takes.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use boxwood_api::{DEFAULT_MOUNT_PATH, McpServerSpec};

use super::key::Key;
use super::paths::{Part, Place};
use super::quote::{quote, quote_all};
use super::{CACHE, InstallPlan};

const BASE: &str = include_str!("scripts/base.sh");
const PYTHON: &str = include_str!("scripts/python.sh");
const NODE: &str = include_str!("scripts/node.sh");

/// Variables that installers read. They are passed on from the server's own, as its launcher would have.
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

pub(super) struct Recipe {
    pub(super) key: Key,
    what: String,
    steps: Vec<String>,
    /// For pip alone; uv reads the manifest.
    declared: Vec<String>,
    parts: Vec<String>,
    contents: Vec<PathBuf>,
}

impl Recipe {
    pub(super) fn new(kind: &str, what: &str) -> Self {
        Self {
            key: Key::new(kind),
            what: what.to_owned(),
            steps: Vec::new(),
            declared: Vec::new(),
            parts: Vec::new(),
            contents: Vec::new(),
        }
    }

    /// Shell, taken as it is.
    pub(super) fn line(&mut self, line: impl Into<String>) {
        self.steps.push(line.into());
    }

    /// A function of ours with arguments of anybody's.
    pub(super) fn call<Word: AsRef<str>>(
        &mut self,
        function: &str,
        words: impl IntoIterator<Item = Word>,
    ) {
        self.steps.push(call(function, words));
    }

    pub(super) fn declare(&mut self, dependencies: &[String]) {
        self.declared = dependencies.to_vec();
    }

    /// The installer sees this directory of the host. What it installs from there is never shared with
    /// another directory, however alike they look: its own code runs while it is installed.
    pub(super) fn show(&mut self, part: Part) {
        let lies_in = |inner: &str, outer: &str| Path::new(inner).starts_with(outer);
        if self.parts.iter().any(|shown| lies_in(&part.name, shown)) {
            return;
        }
        self.key.add("part", &part.name);
        self.key.add_bytes("from", part.real.as_os_str().as_bytes());
        self.parts.retain(|shown| !lies_in(shown, &part.name));
        self.parts.push(part.name);
    }

    pub(super) fn shows(&self, place: &Place) -> bool {
        let is_in = |part: &String| Path::new(part).starts_with(&place.name);
        self.parts.iter().any(is_in)
    }

    /// Every byte at this place of the box decides over the install.
    pub(super) fn counts(&mut self, place: &str) {
        let inside = Path::new(place).strip_prefix(DEFAULT_MOUNT_PATH);
        let inside = inside.unwrap_or(Path::new("")).to_owned();
        if !self.contents.contains(&inside) {
            self.contents.push(inside);
        }
    }

    pub(super) fn finish(mut self, spec: &McpServerSpec, tools: &str) -> InstallPlan {
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
        }
    }

    /// The cache lies elsewhere when a test runs it without a box.
    pub(super) fn script(&self, cache: &str) -> String {
        let mut script = BASE.replace("@CACHE@", &quote(cache));
        script.push_str(&PYTHON.replace("@DECLARED@", &quote_all(&self.declared)));
        script.push_str(NODE);
        for step in &self.steps {
            script.push_str(step);
            script.push('\n');
        }
        script
    }
}

pub(super) fn call<Word: AsRef<str>>(
    function: &str,
    words: impl IntoIterator<Item = Word>,
) -> String {
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
