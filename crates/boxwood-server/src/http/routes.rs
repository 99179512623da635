//! All documented routes, and the document that describes them.
//!
//! The document is a committed file: generating it at run time would cost 1 MB of code and 2 MB of
//! memory. A test generates it from the same list and compares.

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodFilter, get, on};
use pastey::paste;
use utoipa::Path;
use utoipa::openapi::path::HttpMethod;

use super::daemon::events;
use super::mcp::{progress as mcp_progress, servers as mcp_servers};
use super::sessions::exec::{self as execs, sse as exec_sse, ws as exec_ws};
use super::sessions::files::{self, tools as file_tools, transfer};
use super::sessions::processes::{self, relay};
use super::skills::{archives as skill_archives, files as skill_files};
use super::{App, agent, daemon, images, sessions, skills};

/// The document that `/openapi.json` serves.
pub const fn openapi_json() -> &'static str {
    include_str!("../../openapi.json")
}

/// Path and method come from the `utoipa::path` attribute of the handler, so that no route is
/// undocumented.
macro_rules! routes {
    ($($module:ident: $($handler:ident),+;)+) => {
        paste! {
            fn described_routes() -> Router<Arc<App>> {
                Router::new()
                    $($(.route(
                        &$module::[<__path_ $handler>]::path(),
                        on(method::<$module::[<__path_ $handler>]>(), $module::$handler),
                    ))+)+
            }
        }

        #[cfg(test)]
        fn document() -> utoipa::openapi::OpenApi {
            use utoipa::OpenApi as _;

            let router: utoipa_axum::router::OpenApiRouter<Arc<App>> =
                utoipa_axum::router::OpenApiRouter::with_openapi(tests::ApiDoc::openapi())
                    $($(.routes(utoipa_axum::routes!($module::$handler)))+)+;
            router.split_for_parts().1
        }
    };
}

routes! {
    daemon: health, status, profiles, backends, doctor, healthz, readyz, metrics, openapi;
    events: events;
    sessions: list, create, detail, delete, exec;
    exec_sse: exec;
    exec_ws: exec;
    execs: list, detail, kill;
    exec_ws: resume;
    exec_sse: resume;
    processes: list, start, detail, stop, start_named, detail_named, stop_named, signal, logs;
    relay: attach, attach_named;
    transfer: download, upload;
    files: remove, list, stat, mkdir, rename;
    file_tools: read, write, edit, glob, grep;
    images: list, import, delete, pull;
    agent: tools, call, status, errors, guidance, register_skill;
    mcp_servers: list, add, import;
    mcp_progress: test;
    mcp_servers: detail, replace, edit, remove, start, stop, restart, logs;
    mcp_progress: progress, test_stored;
    mcp_servers: tools, call;
    skills: list, create, detail, update, delete;
    skill_files: list, read, write, remove, rename;
    skill_archives: export, install;
}

pub(super) fn routes() -> Router<Arc<App>> {
    // `install` is a fixed route, but can also be the name of a skill.
    described_routes().route(
        &format!("/v1/skills/{}", skills::INSTALL),
        get(skills::detail)
            .patch(skills::update)
            .delete(skills::delete),
    )
}

fn method<Description: Path>() -> MethodFilter {
    match Description::methods().as_slice() {
        [HttpMethod::Get] => MethodFilter::GET,
        [HttpMethod::Post] => MethodFilter::POST,
        [HttpMethod::Put] => MethodFilter::PUT,
        [HttpMethod::Delete] => MethodFilter::DELETE,
        [HttpMethod::Patch] => MethodFilter::PATCH,
        _ => unreachable!("each handler has one of these methods"),
    }
}

#[cfg(test)]
mod tests {
    use boxwood_api::{ErrorBody, ExecInput, RelayControl, RelayNews};
    use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, PathItem};
    use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
    use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
    use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, Required, ResponseBuilder};
    use utoipa::{Modify, OpenApi};

    /// Every change of the API must show up in the committed file.
    #[test]
    fn the_committed_document_describes_the_routes() {
        let written = written();
        if written != super::openapi_json() {
            let new = format!("boxwood-openapi-{}.json", std::process::id());
            let new = std::env::temp_dir().join(new);
            std::fs::write(&new, written).expect("a writable directory");
            let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
            let new = new.display();
            panic!("the API has changed; if this is intended, run: cp {new} {committed}");
        }
    }

    fn written() -> String {
        let mut document = super::document();
        // OpenAPI has no syntax for catch-all parameters.
        document.paths.paths = std::mem::take(&mut document.paths.paths)
            .into_iter()
            .map(|(path, mut item)| {
                let path = path.replace("{*", "{");
                complete(&path, &mut item);
                (path, item)
            })
            .collect();
        let document = serde_json::to_value(document).expect("JSON");
        format!(
            "{}\n",
            serde_json::to_string_pretty(&document).expect("JSON")
        )
    }

    /// Adds what all routes have in common: path parameters, the `incarnation` of a session, and the
    /// response to a request that is refused.
    fn complete(path: &str, item: &mut PathItem) {
        let methods = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        for operation in methods.into_iter().flatten() {
            let parameters = operation.parameters.get_or_insert_default();
            let names = path
                .split('{')
                .skip(1)
                .filter_map(|rest| rest.split('}').next());
            for (at, name) in names.enumerate() {
                let named = |known: &RefOr<Parameter>| matches!(known, RefOr::T(known) if known.name == name);
                if !parameters.iter().any(named) {
                    let schema = if name == "exec_id" {
                        number()
                    } else {
                        ObjectBuilder::new().schema_type(Type::String)
                    };
                    let parameter = ParameterBuilder::new()
                        .name(name)
                        .parameter_in(ParameterIn::Path)
                        .required(Required::True)
                        .schema(Some(schema));
                    parameters.insert(at, parameter.build().into());
                }
            }
            if path.contains("{session_id}") {
                let incarnation = ParameterBuilder::new()
                    .name("incarnation")
                    .parameter_in(ParameterIn::Query)
                    .required(Required::False)
                    .description(Some(
                        "Only this incarnation of the session. If it was replaced or deleted: 410 `session_gone`.",
                    ))
                    .schema(Some(number()));
                parameters.push(incarnation.build().into());
            }
            if parameters.is_empty() {
                operation.parameters = None;
            }
            if path.starts_with("/v1/") {
                let refused = ResponseBuilder::new()
                    .description("The request was refused; `code` and `message` say why")
                    .content(
                        "application/json",
                        Content::new(Some(Ref::from_schema_name("ErrorBody"))),
                    );
                let responses = &mut operation.responses.responses;
                responses.insert("default".to_owned(), refused.build().into());
            }
        }
    }

    fn number() -> ObjectBuilder {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(0))
    }

    #[derive(OpenApi)]
    #[openapi(
        info(
            title = "Boxwood",
            description = "Sandboxes for AI agents: sessions, commands, managed processes, files, skills.",
            license(name = "Apache-2.0", identifier = "Apache-2.0")
        ),
        components(schemas(ErrorBody, ExecInput, RelayControl, RelayNews)),
        security(("bearer" = []), ("api_key" = []), ()),
        modifiers(&Schemes)
    )]
    pub(super) struct ApiDoc;

    struct Schemes;

    impl Modify for Schemes {
        fn modify(&self, document: &mut Document) {
            let components = document.components.get_or_insert_default();
            components.add_security_scheme(
                "bearer",
                SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)),
            );
            components.add_security_scheme(
                "api_key",
                SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))),
            );
        }
    }
}
