//! Install scripts for Python servers. The script decides in the box whether it uses uv or pip.

use std::iter;
use std::path::{Path, PathBuf};

use super::script::Recipe;
use super::{LaunchContext, Resolved};
use crate::hosting::launch::parse::command::ParsedCommand;
use crate::hosting::launch::parse::package::plain;
use crate::hosting::launch::parse::{ProjectRun, PythonTool, Target};
use crate::hosting::launch::project::{PythonKind, PythonProject, ScriptMetadata};
use crate::hosting::launch::workspace::infer::PYTHON_MANIFESTS;
use crate::hosting::launch::{CACHE, LaunchError};

const PROGRAMS: &str = r#""$mcp/venv/bin""#;

/// `uvx`.
pub(crate) fn tool(
    tool: &PythonTool,
    context: &LaunchContext<'_>,
) -> Result<Resolved, LaunchError> {
    let mut recipe = Recipe::new("python-tool", &tool.from);
    let from = context.requirement(&tool.from, &mut recipe)?;
    let mut packages = vec![from];
    packages.extend(requirements(&tool.install.with, context, &mut recipe)?);
    packages.extend(context.with()?);
    let python = tool.install.python.as_deref().unwrap_or_default();
    recipe.key.add_all("package", &packages);
    recipe.key.add_all("option", &tool.install.options);
    recipe.key.add("python", python);
    recipe.key.add("program", &tool.program);
    recipe.call("say", [format!("installing {}", tool.from)]);
    recipe.call("make_venv", [python]);
    let function = match tool.install.python {
        Some(_) => "install_python",
        None => "install_tool",
    };
    recipe.call(function, tool.install.options.iter().chain(&packages));
    recipe.call("python_program", [&tool.program]);
    recipe.line(format!(r#"finish "$program" {PROGRAMS}"#));
    Ok(Resolved::new(
        format!("{CACHE}/venv/bin/{}", tool.program),
        context.words(&tool.args),
        Some(recipe),
    ))
}

/// Maps host paths among the requirements into the box. `-e` and `-r` stay unchanged.
fn requirements(
    words: &[String],
    context: &LaunchContext<'_>,
    recipe: &mut Recipe,
) -> Result<Vec<String>, LaunchError> {
    words
        .iter()
        .map(|word| {
            if word == "-e" || word == "-r" {
                Ok(word.clone())
            } else {
                context.requirement(word, recipe)
            }
        })
        .collect()
}

/// A script, module or program of a project.
pub(crate) fn run(
    run: &ProjectRun,
    parsed: &ParsedCommand,
    context: &LaunchContext<'_>,
) -> Result<Resolved, LaunchError> {
    let cwd = context.cwd_on_host();
    let directory = run.directory.as_deref().map(|path| cwd.join(path));
    let script = script(run, directory.as_deref().unwrap_or(cwd), context);
    let project = if run.has_project {
        let named = run.project.as_deref().map(|path| cwd.join(path));
        let starts = [
            named.as_deref(),
            directory.as_deref(),
            script.as_deref().and_then(Path::parent),
            parsed.venv.as_deref().and_then(Path::parent),
            Some(cwd),
        ];
        context.project(starts.into_iter().flatten(), &PYTHON_MANIFESTS)
    } else {
        None
    };
    let mut recipe = Recipe::new("python-run", &what(run, project.as_deref()));
    let mut with = requirements(&run.install.with, context, &mut recipe)?;
    with.extend(context.with()?);
    recipe.key.add_all("option", &run.install.options);
    recipe.key.add_all("extra", &run.extras);

    let declared = match &project {
        Some(directory) => PythonProject::read(directory)?,
        None => None,
    };
    let script_metadata = match (&declared, &script) {
        (None, Some(script)) => ScriptMetadata::read(script)?,
        _ => None,
    };
    let python = run
        .install
        .python
        .clone()
        .or_else(|| declared.as_ref()?.requires_python.clone())
        .or_else(|| script_metadata.as_ref()?.requires_python.clone())
        .map(|python| plain(&python))
        .transpose()?
        .unwrap_or_default();
    recipe.key.add("python", &python);

    let mut has_venv = true;
    if let (Some(declared), Some(directory)) = (&declared, &project) {
        install_project(
            declared,
            directory,
            run,
            &python,
            &with,
            context,
            &mut recipe,
        )?;
    } else {
        if let Some(metadata) = &script_metadata {
            with.extend(metadata.dependencies.iter().cloned());
        } else if let Some(venv) = &parsed.venv
            && with.is_empty()
            && context.is_mounted(venv)
            && venv.join("pyvenv.cfg").is_file()
        {
            let path = venv.clone();
            return Err(LaunchError::NoManifest { path });
        }
        if with.is_empty() {
            has_venv = false;
        } else {
            recipe.call("make_venv", [&python]);
            recipe.call("install_python", run.install.options.iter().chain(&with));
        }
    }
    recipe.key.add_all("with", &with);
    Ok(resolved(run, directory, has_venv, &python, recipe, context))
}

/// Ends the script and sets the program to start.
fn resolved(
    run: &ProjectRun,
    directory: Option<PathBuf>,
    has_venv: bool,
    python: &str,
    mut recipe: Recipe,
    context: &LaunchContext<'_>,
) -> Resolved {
    let path = if has_venv { PROGRAMS } else { "" };
    let command = match &run.target {
        Target::Python if has_venv => {
            recipe.line(format!(r#"finish "$mcp/venv/bin/python" {path}"#));
            recipe.key.add("target", "python");
            "python".to_owned()
        }
        // No install is needed.
        Target::Python if run.is_python3 => {
            return Resolved::new("python3".to_owned(), context.words(&run.args), None);
        }
        Target::Python => {
            let version = if python.starts_with("3.") { python } else { "" };
            recipe.call("only_python", [version]);
            recipe.line(r#"finish "$program""#);
            recipe.key.add("target", "only-python");
            "python".to_owned()
        }
        Target::Program(name) if name.contains('/') => {
            recipe.line(format!("finish '' {path}"));
            recipe.key.add("target", "path");
            context.path_map.word(name)
        }
        Target::Program(name) => {
            recipe.call("any_program", [name]);
            recipe.line(format!(r#"finish "$program" {path}"#));
            recipe.key.add("target", name);
            name.clone()
        }
    };
    let mut resolved = Resolved::new(command, context.words(&run.args), Some(recipe));
    resolved.cwd = directory.and_then(|directory| context.path_map.path(&directory));
    resolved
}

fn what(run: &ProjectRun, project: Option<&Path>) -> String {
    let name = project.and_then(|path| path.file_name()?.to_str());
    match (name, run.install.with.first(), &run.target) {
        (Some(name), ..) => name.to_owned(),
        (None, Some(package), _) => package.clone(),
        (None, None, Target::Program(name)) => name.clone(),
        (None, None, Target::Python) => "python".to_owned(),
    }
}

/// The script in the arguments, as a host path.
fn script(run: &ProjectRun, cwd: &Path, context: &LaunchContext<'_>) -> Option<PathBuf> {
    let mut words = run.args.iter().map(Path::new);
    let word = words.find(|word| word.extension().is_some_and(|ending| ending == "py"))?;
    Some(cwd.join(word)).filter(|script| context.is_mounted(script))
}

fn install_project(
    project: &PythonProject,
    directory: &Path,
    run: &ProjectRun,
    python: &str,
    with: &[String],
    context: &LaunchContext<'_>,
    recipe: &mut Recipe,
) -> Result<(), LaunchError> {
    let box_path = context.install_from(directory, recipe)?;
    recipe.call("cd", [&box_path]);
    recipe.call("make_venv", [python]);

    let extras = run.extras.iter().flat_map(|extra| ["--extra", extra]);
    let options = run.install.options.iter().chain(with).map(String::as_str);
    if project.has_lock {
        let words = [box_path.as_str()].into_iter().chain(extras);
        recipe.call("sync_project", words);
        recipe.call("refuse_compiled", [&box_path]);
        if !with.is_empty() {
            recipe.call("install_python", options);
        }
        return Ok(());
    }
    if run.requires_lock {
        let path = directory.to_owned();
        return Err(LaunchError::NoLock { path });
    }
    let (function, mut words) = match project.kind {
        PythonKind::Requirements => {
            let list = format!("{box_path}/requirements.txt");
            ("install_python", vec!["-r".to_owned(), list])
        }
        PythonKind::Declared => {
            let manifest = format!("{box_path}/pyproject.toml");
            let extras = extras.map(str::to_owned);
            (
                "install_declared",
                iter::once(manifest).chain(extras).collect(),
            )
        }
        PythonKind::Package => {
            let source = match run.extras.as_slice() {
                [] => box_path.clone(),
                extras => format!("{box_path}[{}]", extras.join(",")),
            };
            ("install_python", vec!["-e".to_owned(), source])
        }
    };
    words.extend(options.map(str::to_owned));
    recipe.call(function, words);
    if project.kind == PythonKind::Package {
        recipe.call("refuse_compiled", [&box_path]);
    }
    Ok(())
}
