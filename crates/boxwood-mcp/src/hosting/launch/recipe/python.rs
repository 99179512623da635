//! Install scripts for Python servers. The script decides in the box whether it uses uv or pip.

use std::path::{Path, PathBuf};

use super::script::Recipe;
use super::shell_quote::quote;
use super::{LaunchContext, Resolved};
use crate::hosting::launch::parse::command::ParsedCommand;
use crate::hosting::launch::parse::package::plain;
use crate::hosting::launch::parse::{ProjectRun, PythonTool, Target};
use crate::hosting::launch::project::{PythonKind, PythonProject, ScriptNeeds};
use crate::hosting::launch::workspace::infer::nearest;
use crate::hosting::launch::workspace::manifests;
use crate::hosting::launch::workspace::paths::real;
use crate::hosting::launch::{CACHE, LaunchError};

const MANIFESTS: [&str; 4] = [
    "pyproject.toml",
    "requirements.txt",
    "setup.py",
    "setup.cfg",
];
const PROGRAMS: &str = r#""$mcp/venv/bin""#;

/// `uvx`.
pub(crate) fn tool(
    tool: &PythonTool,
    context: &LaunchContext<'_>,
) -> Result<Resolved, LaunchError> {
    let mut recipe = Recipe::new("python-tool", &tool.from);
    let from = context.requirement(&tool.from, &mut recipe)?;
    let mut packages = vec![from];
    packages.extend(requirements(&tool.how.with, context, &mut recipe)?);
    packages.extend(context.with()?);
    let python = tool.how.python.as_deref().unwrap_or_default();
    recipe.key.add_all("package", &packages);
    recipe.key.add_all("option", &tool.how.options);
    recipe.key.add("python", python);
    recipe.key.add("program", &tool.program);
    recipe.line(format!(
        "say {}",
        quote(&format!("installing {}", tool.from))
    ));
    recipe.call("make_venv", [python]);
    let install = match tool.how.python {
        Some(_) => "install_python",
        None => "install_tool",
    };
    recipe.call(install, tool.how.options.iter().chain(&packages));
    recipe.call("python_program", [&tool.program]);
    recipe.line(format!(r#"finish "$program" {PROGRAMS}"#));
    Ok(Resolved::new(
        format!("{CACHE}/venv/bin/{}", tool.program),
        context.words(&tool.args),
        Some(recipe),
    ))
}

/// Keeps `-e` and `-r`.
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
    let directory = run.directory.as_deref().map(|path| context.on_host(path));
    let script = script(run, directory.as_deref(), context);
    let project = if run.has_project {
        project(
            run,
            directory.as_deref(),
            script.as_deref(),
            parsed,
            context,
        )
    } else {
        None
    };
    let mut recipe = Recipe::new("python-run", &what(run, project.as_deref()));
    let mut with = requirements(&run.how.with, context, &mut recipe)?;
    with.extend(context.with()?);
    recipe.key.add_all("option", &run.how.options);
    recipe.key.add_all("extra", &run.extras);
    recipe.key.add_all("by-lock", &run.by_lock);

    let declared = match &project {
        Some(directory) => PythonProject::read(directory)?,
        None => None,
    };
    let own_needs = match (&declared, &script) {
        (None, Some(script)) => ScriptNeeds::read(script)?,
        _ => None,
    };
    let wanted = run
        .how
        .python
        .clone()
        .or_else(|| declared.as_ref()?.requires_python.clone())
        .or_else(|| own_needs.as_ref()?.requires_python.clone())
        .map(|wanted| plain(&wanted))
        .transpose()?
        .unwrap_or_default();
    recipe.key.add("python", &wanted);

    let mut has_venv = true;
    if let (Some(declared), Some(directory)) = (&declared, &project) {
        install_project(
            declared,
            directory,
            run,
            &wanted,
            &with,
            context,
            &mut recipe,
        )?;
    } else {
        if let Some(needs) = &own_needs {
            with.extend(needs.dependencies.iter().cloned());
        } else if let Some(venv) = &parsed.venv
            && with.is_empty()
            // Environments elsewhere were not checked by policy.
            && context.in_box(venv).is_some()
            && venv.join("pyvenv.cfg").is_file()
        {
            let path = venv.clone();
            return Err(LaunchError::NoManifest { path });
        }
        if with.is_empty() {
            has_venv = false;
        } else {
            recipe.call("make_venv", [&wanted]);
            recipe.call("install_python", run.how.options.iter().chain(&with));
        }
    }
    recipe.key.add_all("with", &with);
    Ok(resolved(run, directory, has_venv, &wanted, recipe, context))
}

/// Ends the script and sets the program to start.
fn resolved(
    run: &ProjectRun,
    directory: Option<PathBuf>,
    has_venv: bool,
    wanted: &str,
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
        // Nothing to install or to look up.
        Target::Python if run.interpreter.is_some() => {
            let command = run.interpreter.unwrap_or("python3").to_owned();
            return Resolved::new(command, context.words(&run.args), None);
        }
        Target::Python => {
            let version = if wanted.starts_with("3.") { wanted } else { "" };
            recipe.call("only_python", [version]);
            recipe.line(r#"finish "$program""#);
            recipe.key.add("target", "only-python");
            "python".to_owned()
        }
        Target::Program(name) if name.contains('/') => {
            recipe.line(format!("finish '' {path}"));
            recipe.key.add("target", "path");
            context.word(name)
        }
        Target::Program(name) => {
            recipe.call("any_program", [name]);
            recipe.line(format!(r#"finish "$program" {path}"#));
            recipe.key.add("target", name);
            name.clone()
        }
    };
    let mut resolved = Resolved::new(command, context.words(&run.args), Some(recipe));
    resolved.cwd = directory.and_then(|directory| context.in_box(&directory));
    resolved
}

fn what(run: &ProjectRun, project: Option<&Path>) -> String {
    let name = project.and_then(|path| path.file_name()?.to_str());
    match (name, run.how.with.first(), &run.target) {
        (Some(name), ..) => name.to_owned(),
        (None, Some(package), _) => package.clone(),
        (None, None, Target::Program(name)) => name.clone(),
        (None, None, Target::Python) => "python".to_owned(),
    }
}

/// The script in the arguments, as a host path.
fn script(
    run: &ProjectRun,
    directory: Option<&Path>,
    context: &LaunchContext<'_>,
) -> Option<PathBuf> {
    let word = run
        .args
        .iter()
        .map(Path::new)
        .find(|word| word.extension().is_some_and(|ending| ending == "py"))?;
    let base = directory
        .map(Path::to_owned)
        .or_else(|| context.cwd_on_host())
        .unwrap_or_default();
    let script = base.join(word);
    // Paths elsewhere were not checked by policy.
    context.in_box(&script).map(|_| script)
}

fn project(
    run: &ProjectRun,
    directory: Option<&Path>,
    script: Option<&Path>,
    parsed: &ParsedCommand,
    context: &LaunchContext<'_>,
) -> Option<PathBuf> {
    let named = run.project.as_deref().map(|path| context.on_host(path));
    let starts = [
        named,
        directory.map(Path::to_owned),
        script.and_then(Path::parent).map(Path::to_owned),
        parsed
            .venv
            .as_deref()
            .and_then(Path::parent)
            .map(Path::to_owned),
        context.cwd_on_host(),
    ];
    starts
        .into_iter()
        .flatten()
        .filter_map(|start| nearest(&real(&start), &MANIFESTS))
        .find(|found| context.in_box(found).is_some())
}

fn install_project(
    project: &PythonProject,
    directory: &Path,
    run: &ProjectRun,
    wanted: &str,
    with: &[String],
    context: &LaunchContext<'_>,
    recipe: &mut Recipe,
) -> Result<(), LaunchError> {
    let place = context.in_box(directory).unwrap_or_default();
    context.show(directory, recipe)?;
    recipe.key.add("project", &place);
    manifests::add_manifests(&mut recipe.key, directory)?;
    recipe.line(format!(
        "say {}",
        quote(&format!("installing the dependencies of {place}"))
    ));
    recipe.line(format!("cd {}", quote(&place)));
    recipe.call("make_venv", [wanted]);

    // The sources of an editable install stay live. Compiled files would be left in the copy of the installer.
    let is_frozen =
        project.kind == PythonKind::Package && manifests::builds_native_code(directory)?;
    if is_frozen {
        recipe.key.add("build", "frozen");
        recipe.counts(directory);
    }
    let extras = run.extras.iter().flat_map(|extra| ["--extra", extra]);
    let options = run.how.options.iter().chain(with).map(String::as_str);
    if project.has_lock {
        let by_lock = run.by_lock.iter().map(String::as_str);
        let frozen = is_frozen.then_some("--no-editable");
        let words = [place.as_str()].into_iter().chain(extras);
        recipe.call("sync_project", words.chain(by_lock).chain(frozen));
        if !with.is_empty() {
            recipe.call("install_python", options);
        }
        return Ok(());
    }
    if let Some(option) = &run.needs_lock {
        return Err(LaunchError::NoLock {
            option: option.clone(),
            path: directory.to_owned(),
        });
    }
    let (function, words) = match project.kind {
        PythonKind::Requirements => {
            let list = format!("{place}/requirements.txt");
            ("install_python", vec!["-r".to_owned(), list])
        }
        PythonKind::Declared => {
            let mut words = vec![format!("{place}/pyproject.toml")];
            words.extend(extras.map(str::to_owned));
            ("install_declared", words)
        }
        PythonKind::Package => {
            let source = match run.extras.as_slice() {
                [] => place,
                extras => format!("{place}[{}]", extras.join(",")),
            };
            let editable = (!is_frozen).then(|| "-e".to_owned());
            let words = editable.into_iter().chain([source]).collect();
            ("install_python", words)
        }
    };
    recipe.call(function, words.iter().map(String::as_str).chain(options));
    Ok(())
}
