//! Reads the manifests of a project on the host.
//!
//! Errors never quote the files, because policy has not yet decided whether the caller may read them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Table;

use super::LaunchError;
use super::parse::package::plain;
use super::read_text::read_text;

const MAX_MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
/// Longer scripts are not searched for metadata.
const MAX_SCRIPT_BYTES: u64 = 1024 * 1024;
const MAX_DEPENDENCIES: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PythonKind {
    /// Only a `requirements.txt`.
    Requirements,
    /// A `pyproject.toml` with dependencies and no build.
    Declared,
    /// A project that is installed itself.
    Package,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PythonProject {
    pub(crate) kind: PythonKind,
    pub(crate) requires_python: Option<String>,
    pub(crate) has_lock: bool,
}

impl PythonProject {
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, LaunchError> {
        let has = |name: &str| directory.join(name).is_file();
        let pyproject = match manifest(directory, "pyproject.toml")? {
            Some((path, text)) => Some(toml(&path, &text, "invalid TOML")?),
            None => None,
        };
        let declared = pyproject.as_ref().and_then(pyproject_kind);
        let kind = if has("setup.py") || has("setup.cfg") {
            PythonKind::Package
        } else if let Some(kind) = declared {
            kind
        } else if has("requirements.txt") {
            PythonKind::Requirements
        } else {
            return Ok(None);
        };
        let project = pyproject.as_ref().and_then(|it| table(it, "project"));
        Ok(Some(Self {
            kind,
            requires_python: project.and_then(required_python),
            has_lock: has("uv.lock"),
        }))
    }
}

fn toml(path: &Path, text: &str, message: &str) -> Result<Table, LaunchError> {
    text.parse().map_err(|_| bad_manifest(path, message))
}

fn required_python(table: &Table) -> Option<String> {
    table.get("requires-python")?.as_str().map(str::to_owned)
}

fn table<'a>(parent: &'a Table, name: &str) -> Option<&'a Table> {
    parent.get(name).and_then(toml::Value::as_table)
}

/// `None` if the file only configures tools.
fn pyproject_kind(pyproject: &Table) -> Option<PythonKind> {
    let tools = table(pyproject, "tool");
    let has_tool = |name: &str| tools.is_some_and(|tools| tools.contains_key(name));
    let is_package = tools
        .and_then(|tools| table(tools, "uv"))
        .and_then(|uv| uv.get("package"))
        .and_then(toml::Value::as_bool);
    match is_package {
        Some(true) => Some(PythonKind::Package),
        Some(false) => Some(PythonKind::Declared),
        None if pyproject.contains_key("build-system") || has_tool("poetry") => {
            Some(PythonKind::Package)
        }
        None => pyproject
            .contains_key("project")
            .then_some(PythonKind::Declared),
    }
}

fn texts(value: &toml::Value) -> Option<Vec<String>> {
    value
        .as_array()?
        .iter()
        .map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn bad_manifest(path: &Path, message: &str) -> LaunchError {
    LaunchError::BadManifest {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}

/// Inline metadata of a script (PEP 723).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptMetadata {
    pub(crate) dependencies: Vec<String>,
    pub(crate) requires_python: Option<String>,
}

impl ScriptMetadata {
    pub(crate) fn read(script: &Path) -> Result<Option<Self>, LaunchError> {
        // A script that is too long or not UTF-8 has no metadata.
        let Ok(Some(text)) = read_text(script, MAX_SCRIPT_BYTES) else {
            return Ok(None);
        };
        let Some(block) = metadata_block(&text) else {
            return Ok(None);
        };
        let table = toml(script, &block, "its `script` metadata is invalid TOML")?;
        let dependencies = table
            .get("dependencies")
            .map_or(Some(Vec::new()), texts)
            .filter(|all| all.len() <= MAX_DEPENDENCIES)
            .ok_or_else(|| bad_manifest(script, "its `dependencies` are not a list of strings"))?;
        // An installer would take some words for an option.
        if dependencies.iter().any(|word| plain(word).is_err()) {
            let message = "one of its `dependencies` is not a valid requirement";
            return Err(bad_manifest(script, message));
        }
        Ok(Some(Self {
            dependencies,
            requires_python: required_python(&table),
        }))
    }
}

fn metadata_block(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim_end);
    lines.find(|line| *line == "# /// script")?;
    let mut block = String::new();
    for line in lines {
        if line == "# ///" {
            return Some(block);
        }
        let content = line.strip_prefix('#')?;
        block.push_str(content.strip_prefix(' ').unwrap_or(content));
        block.push('\n');
    }
    None
}

/// Returns true if the project has dependencies and no `node_modules`.
pub(crate) fn lacks_node_modules(directory: &Path) -> Result<bool, LaunchError> {
    let Some((path, text)) = manifest(directory, "package.json")? else {
        return Ok(false);
    };
    let manifest: Value =
        serde_json::from_str(&text).map_err(|_| bad_manifest(&path, "invalid JSON"))?;
    let has_dependencies = ["dependencies", "devDependencies", "optionalDependencies"]
        .iter()
        .filter_map(|name| manifest.get(name)?.as_object())
        .any(|names| !names.is_empty());
    Ok(has_dependencies && fs::symlink_metadata(directory.join("node_modules")).is_err())
}

/// The path of a manifest and its text.
fn manifest(directory: &Path, name: &str) -> Result<Option<(PathBuf, String)>, LaunchError> {
    let path = directory.join(name);
    match read_text(&path, MAX_MANIFEST_BYTES) {
        Ok(text) => Ok(text.map(|text| (path, text))),
        Err(source) => Err(LaunchError::Manifest { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("writable");
        }
        directory
    }

    #[track_caller]
    fn kind(files: &[(&str, &str)]) -> Option<PythonKind> {
        PythonProject::read(tree(files).path())
            .expect("it can be read")
            .map(|project| project.kind)
    }

    #[test]
    fn projects_are_classified_by_their_manifests() {
        const BUILDS: &str = "[build-system]\nrequires=[]\n[project]\nname='x'\n";
        const LISTS: &str = "[project]\nname='x'\ndependencies=['mcp<2']\n";
        const TOOLS: &str = "[tool.ruff]\nline-length=100\n";
        assert_eq!(kind(&[]), None);
        assert_eq!(kind(&[("server.py", "")]), None);
        assert_eq!(
            kind(&[("requirements.txt", "mcp")]),
            Some(PythonKind::Requirements)
        );
        assert_eq!(
            kind(&[("requirements.txt", "mcp"), ("pyproject.toml", BUILDS)]),
            Some(PythonKind::Package)
        );
        assert_eq!(kind(&[("setup.py", "")]), Some(PythonKind::Package));
        assert_eq!(kind(&[("setup.cfg", "")]), Some(PythonKind::Package));
        assert_eq!(
            kind(&[("pyproject.toml", LISTS)]),
            Some(PythonKind::Declared)
        );
        assert_eq!(
            kind(&[("pyproject.toml", LISTS), ("setup.py", "")]),
            Some(PythonKind::Package)
        );
        assert_eq!(kind(&[("pyproject.toml", TOOLS)]), None);
        assert_eq!(
            kind(&[("pyproject.toml", TOOLS), ("requirements.txt", "")]),
            Some(PythonKind::Requirements)
        );
        assert_eq!(
            kind(&[("pyproject.toml", "[tool.poetry]\nname='x'\n")]),
            Some(PythonKind::Package)
        );
    }

    #[test]
    fn the_required_python_is_read() {
        let tree = tree(&[(
            "pyproject.toml",
            "[project]\nname='x'\nrequires-python='>=3.10'\n",
        )]);
        let project = PythonProject::read(tree.path()).expect("it can be read");
        let required = project.and_then(|project| project.requires_python);
        assert_eq!(required.as_deref(), Some(">=3.10"));
    }

    #[test]
    fn an_invalid_manifest_is_named_and_not_quoted() {
        let tree = tree(&[
            ("pyproject.toml", "secret = = 1"),
            ("package.json", "{secret"),
        ]);
        for error in [
            PythonProject::read(tree.path()).expect_err("no TOML"),
            lacks_node_modules(tree.path()).expect_err("no JSON"),
        ] {
            assert!(matches!(error, LaunchError::BadManifest { .. }));
            assert!(!format!("{error:?}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn inline_script_metadata_is_read() {
        let tree = tree(&[
            (
                "with.py",
                "#!/usr/bin/env python\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"mcp<2\",\n#   \"httpx\",\n# ]\n# ///\nprint()\n",
            ),
            ("without.py", "# a script\nprint()\n"),
            ("open.py", "# /// script\n# dependencies = []\nprint()\n"),
        ]);
        let read = |name: &str| ScriptMetadata::read(&tree.path().join(name)).expect("it is fine");
        assert_eq!(
            read("with.py"),
            Some(ScriptMetadata {
                dependencies: vec!["mcp<2".to_owned(), "httpx".to_owned()],
                requires_python: Some(">=3.11".to_owned()),
            })
        );
        assert_eq!(read("without.py"), None);
        assert_eq!(read("open.py"), None);
        assert_eq!(read("missing.py"), None);
    }

    #[test]
    fn modules_are_missing_only_if_needed() {
        let none = tree(&[("package.json", r#"{"name":"x"}"#)]);
        let some = tree(&[("package.json", r#"{"dependencies":{"zod":"3"}}"#)]);
        let lacks = |directory: &Path| lacks_node_modules(directory).expect("it can be read");
        assert!(!lacks(none.path()));
        assert!(lacks(some.path()));
        fs::create_dir(some.path().join("node_modules")).expect("writable");
        assert!(!lacks(some.path()));
        assert!(!lacks(tree(&[]).path()));
    }
}
