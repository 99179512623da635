//! Install scripts for Node servers.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::script::Recipe;
use super::{LaunchContext, Resolved};
use crate::hosting::launch::parse::NodeTool;
use crate::hosting::launch::parse::command::{Launcher, ParsedCommand};
use crate::hosting::launch::parse::package::NpmPackage;
use crate::hosting::launch::project::lacks_node_modules;
use crate::hosting::launch::workspace::infer::NODE_MANIFESTS;
use crate::hosting::launch::{CACHE, LaunchError};

const FINISH: &str =
    r#"finish "$program" "$mcp/node_modules/.bin" ${node_installed:+"$mcp/node/bin"}"#;

/// `npx`.
pub(crate) fn tool(tool: &NodeTool, context: &LaunchContext<'_>) -> Result<Resolved, LaunchError> {
    let what: Vec<_> = tool.packages.iter().map(NpmPackage::word).collect();
    let mut recipe = Recipe::new("node-tool", &what.join(" "));
    let packages = packages(&tool.packages, context, &mut recipe)?;
    recipe.call("say", [format!("installing {}", what.join(" "))]);
    recipe.line("find_node npm");
    let mut dependencies = packages.requested.clone();
    dependencies.extend(packages.with.clone());
    let manifest = json!({
        "private": true,
        "dependencies": dependencies,
        "overrides": packages.with,
    });
    let manifest = manifest.to_string();
    let words = [&manifest].into_iter().chain(&tool.options);
    recipe.call("install_packages", words.chain(&packages.addresses));
    recipe.key.add_all("option", &tool.options);
    let command = if let Some(name) = &tool.program {
        recipe.key.add("program", name);
        recipe.call("node_program", [name]);
        format!("{CACHE}/node_modules/.bin/{name}")
    } else {
        recipe.key.add("of-package", "");
        // The name of a package from a URL is read from its manifest after the install.
        let first = tool.packages.first().map(|package| match package {
            NpmPackage::Registry { name, .. } => name.as_str(),
            NpmPackage::Address { .. } => "",
        });
        let others = packages.with.keys().map(String::as_str);
        let words = [first.unwrap_or_default()].into_iter().chain(others);
        recipe.call("package_program", words);
        what.first().cloned().unwrap_or_default()
    };
    recipe.line(FINISH);
    let args = context.words(&tool.args);
    Ok(Resolved::new(command, args, Some(recipe)))
}

/// `node` or `npm` with a project or script.
pub(crate) fn run(
    program: &'static str,
    args: &[String],
    parsed: &ParsedCommand,
    context: &LaunchContext<'_>,
) -> Result<Resolved, LaunchError> {
    let project = missing_modules(parsed, context)?;
    let what = project
        .as_deref()
        .and_then(|path| path.file_name()?.to_str())
        .unwrap_or(program);
    let mut recipe = Recipe::new("node-run", what);
    let packages = packages(&[], context, &mut recipe)?;
    if project.is_none() && !context.spec.with.is_empty() {
        return Err(LaunchError::WithNothing {
            command: program.to_owned(),
        });
    }
    let needs_npm = project.is_some() || program == "npm";
    recipe.key.add("program", program);
    recipe.call("find_node", [if needs_npm { "npm" } else { "node" }]);
    if let Some(directory) = &project {
        let box_path = context.install_from(directory, &mut recipe)?;
        let words = [box_path, Value::from(packages.with).to_string()];
        let words = words.into_iter().chain(packages.addresses);
        recipe.call("install_node_project", words);
        recipe.has_node_modules = true;
    }
    recipe.line(format!(r#"program="$(command -v {program})""#));
    recipe.line(FINISH);
    let args = context.words(args);
    Ok(Resolved::new(program.to_owned(), args, Some(recipe)))
}

#[derive(Default)]
struct Packages {
    /// Versions by name.
    requested: Map<String, Value>,
    /// Versions by name, which override those of dependencies.
    with: Map<String, Value>,
    /// URLs and paths.
    addresses: Vec<String>,
}

/// The packages of the command and of `with`.
fn packages(
    requested: &[NpmPackage],
    context: &LaunchContext<'_>,
    recipe: &mut Recipe,
) -> Result<Packages, LaunchError> {
    let with = context.spec.with.iter().map(|word| NpmPackage::read(word));
    let with = with.collect::<Result<Vec<_>, _>>()?;
    let mut packages = Packages::default();
    let mut addresses = Vec::new();
    for (versions, list) in [
        (&mut packages.requested, requested),
        (&mut packages.with, with.as_slice()),
    ] {
        for package in list {
            match package {
                NpmPackage::Registry { name, range } => {
                    versions.insert(name.clone(), Value::from(range.as_str()));
                }
                NpmPackage::Address { address } => {
                    addresses.push(context.requirement(address, recipe)?);
                }
            }
        }
        let versions = Value::from(versions.clone()).to_string();
        recipe.key.add("known", &versions);
    }
    recipe.key.add_all("address", &addresses);
    packages.addresses = addresses;
    Ok(packages)
}

/// The project of the started program, if its `node_modules` are missing.
fn missing_modules(
    parsed: &ParsedCommand,
    context: &LaunchContext<'_>,
) -> Result<Option<PathBuf>, LaunchError> {
    let cwd = context.cwd_on_host();
    let scripts: Vec<_> = parsed.scripts().map(|script| cwd.join(script)).collect();
    let starts = scripts.iter().filter_map(|script| script.parent());
    match context.project(starts.chain([cwd]), &NODE_MANIFESTS) {
        Some(directory) if lacks_node_modules(&directory)? => Ok(Some(directory)),
        _ => Ok(None),
    }
}

/// `server-memory` writes beside its code unless this variable is set, and installs are read-only.
pub(crate) const MEMORY_FILE: (&str, &str) = ("MEMORY_FILE_PATH", "/workspace/memory.jsonl");

pub(crate) fn is_server_memory(launcher: &Launcher) -> bool {
    const PACKAGE: &str = "@modelcontextprotocol/server-memory";
    let Launcher::NodeTool(tool) = launcher else {
        return false;
    };
    tool.packages
        .iter()
        .any(|package| matches!(package, NpmPackage::Registry { name, .. } if name == PACKAGE))
}
