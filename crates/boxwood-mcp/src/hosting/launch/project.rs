//! Reads the manifests of a project on the host.
//!
//! Errors never quote the files, because policy has not yet decided whether the caller may read them.

use std::fs;
use std::path::Path;

use serde_json::Value;
use toml::Table;

use super::LaunchError;
use super::parse::package::plain;
use super::read_text::read_text;

const LONGEST_MANIFEST: u64 = 4 * 1024 * 1024;
/// How far into a script its metadata is searched.
const LONGEST_SCRIPT: u64 = 1024 * 1024;
const MOST_DEPENDENCIES: usize = 1000;

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
        let pyproject = pyproject(directory)?;
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
        let requires_python = pyproject
            .as_ref()
            .and_then(|pyproject| table(pyproject, "project")?.get("requires-python"))
            .and_then(toml::Value::as_str)
            .map(str::to_owned);
        Ok(Some(Self {
            kind,
            requires_python,
            has_lock: has("uv.lock"),
        }))
    }
}

fn table<'a>(of: &'a Table, name: &str) -> Option<&'a Table> {
    of.get(name).and_then(toml::Value::as_table)
}

fn pyproject(directory: &Path) -> Result<Option<Table>, LaunchError> {
    let path = directory.join("pyproject.toml");
    let text = read_text(&path, LONGEST_MANIFEST).map_err(|source| LaunchError::Manifest {
        path: path.clone(),
        source,
    })?;
    text.map(|text| {
        text.parse::<Table>()
            .map_err(|_| bad(&path, "invalid TOML"))
    })
    .transpose()
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

/// Refuses entries that an installer would take for an option, without quoting them.
fn check_names(path: &Path, dependencies: &[String]) -> Result<(), LaunchError> {
    if dependencies.iter().any(|word| plain(word).is_err()) {
        return Err(bad(
            path,
            "one of its `dependencies` is not a valid requirement",
        ));
    }
    Ok(())
}

fn texts(value: &toml::Value) -> Option<Vec<String>> {
    value
        .as_array()?
        .iter()
        .map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn bad(path: &Path, message: &str) -> LaunchError {
    LaunchError::BadManifest {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}

/// Inline metadata of a script (PEP 723).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptNeeds {
    pub(crate) dependencies: Vec<String>,
    pub(crate) requires_python: Option<String>,
}

impl ScriptNeeds {
    pub(crate) fn read(script: &Path) -> Result<Option<Self>, LaunchError> {
        // A script that is too long or not UTF-8 has no metadata.
        let Ok(Some(text)) = read_text(script, LONGEST_SCRIPT) else {
            return Ok(None);
        };
        let Some(block) = metadata_block(&text) else {
            return Ok(None);
        };
        let table = block
            .parse::<Table>()
            .map_err(|_| bad(script, "its `script` metadata is invalid TOML"))?;
        let dependencies = table
            .get("dependencies")
            .map_or(Some(Vec::new()), texts)
            .filter(|all| all.len() <= MOST_DEPENDENCIES)
            .ok_or_else(|| bad(script, "its `dependencies` are not a list of strings"))?;
        check_names(script, &dependencies)?;
        Ok(Some(Self {
            dependencies,
            requires_python: table
                .get("requires-python")
                .and_then(toml::Value::as_str)
                .map(str::to_owned),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeModules {
    /// Present, or not needed.
    Here,
    Missing,
}

/// `None` without a `package.json`.
pub(crate) fn node_modules(directory: &Path) -> Result<Option<NodeModules>, LaunchError> {
    let path = directory.join("package.json");
    let text = read_text(&path, LONGEST_MANIFEST).map_err(|source| LaunchError::Manifest {
        path: path.clone(),
        source,
    })?;
    let Some(text) = text else {
        return Ok(None);
    };
    let manifest: Value = serde_json::from_str(&text).map_err(|_| bad(&path, "invalid JSON"))?;
    let needs_some = ["dependencies", "devDependencies", "optionalDependencies"]
        .iter()
        .filter_map(|name| manifest.get(name)?.as_object())
        .any(|names| !names.is_empty());
    let has_some = fs::symlink_metadata(directory.join("node_modules")).is_ok();
    Ok(Some(if needs_some && !has_some {
        NodeModules::Missing
    } else {
        NodeModules::Here
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("there is room");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("it is ours");
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
            node_modules(tree.path()).expect_err("no JSON"),
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
        let read = |name: &str| ScriptNeeds::read(&tree.path().join(name)).expect("it is fine");
        assert_eq!(
            read("with.py"),
            Some(ScriptNeeds {
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
        let read = |directory: &Path| node_modules(directory).expect("it can be read");
        assert_eq!(read(none.path()), Some(NodeModules::Here));
        assert_eq!(read(some.path()), Some(NodeModules::Missing));
        fs::create_dir(some.path().join("node_modules")).expect("it is ours");
        assert_eq!(read(some.path()), Some(NodeModules::Here));
        assert_eq!(read(tree(&[]).path()), None);
    }
}
