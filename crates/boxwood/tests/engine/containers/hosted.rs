//! MCP servers in containers.

use crate::engine::{Engine, variable};
use crate::hosting::a_server_is_hosted_to_its_end;

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_server_is_hosted_to_its_end() {
    let image = variable("BOXWOOD_TEST_IMAGE");
    a_server_is_hosted_to_its_end(Engine::chosen().daemon_settings(), Some(image)).await;
}
