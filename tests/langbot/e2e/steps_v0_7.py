"""A LangBot with the 0.7 wire format, which has workspaces and generations."""

from __future__ import annotations

import json

import mcp_servers
from environment import Environment, until_available, until_unavailable

NAME = 'arithmetic'
NATIVE_TOOLS = {'exec', 'read', 'write', 'edit', 'glob', 'grep'}


async def the_runtime_is_available(environment: Environment) -> None:
    status = await environment.langbot.get('/box/status')
    assert status['available'] is True, status
    assert status['backend']['available'] is True, status
    assert status['active_sessions'] == 0, status
    assert status['limits']['max_sessions'] == 64, status
    assert status['capacity'] == {'limit': 64, 'used': 0, 'remaining': 64}, status
    runtime = await environment.langbot.get('/box/runtime-status')
    assert runtime['available'] is True, runtime
    if environment.on_boxwood:
        assert runtime['backend']['name'] == 'native', runtime
    assert await environment.langbot.get('/box/sessions') == []


async def agents_have_the_tools(environment: Environment) -> None:
    tools = (await environment.langbot.get('/tools'))['tools']
    names = {tool['name'] for tool in tools if tool['source'] == 'builtin'}
    assert names >= NATIVE_TOOLS, names


async def an_mcp_server_connects(environment: Environment) -> None:
    info = await mcp_servers.add_server(environment, NAME)
    assert sorted(tool['name'] for tool in info['tools']) == mcp_servers.TOOLS, info
    assert info['box_session_id'] == 'mcp-shared', info
    (session,) = await environment.langbot.get('/box/sessions')
    # The id that LangBot chose, without the workspace and the generation.
    assert session['session_id'] == 'mcp-shared', session
    assert session['network'] == 'on' and session['persistent'] is True, session
    assert '/tenants/ws-' in session['host_path'], session
    assert (await environment.langbot.get('/box/status'))['capacity']['used'] == 1
    logs = (await environment.langbot.get(f'/mcp/servers/{NAME}/logs'))['logs']
    assert [line['text'] for line in logs] == ['ready'], logs


async def a_resource_of_an_mcp_server_is_read(environment: Environment) -> None:
    location = await location_of(environment, NAME)
    assert location['cwd'].startswith('/workspace/.mcp/'), location
    assert location['greeting'] == 'good morning', location
    assert location['sees_path'] is False, location


async def an_mcp_server_installs_its_requirements(environment: Environment) -> None:
    environment.require_package_installation()
    info = await mcp_servers.add_server_with_requirements(environment, 'needy')
    assert 'add_with_package' in [tool['name'] for tool in info['tools']], info
    location = await location_of(environment, 'needy')
    assert location['cwd'] != (await location_of(environment, NAME))['cwd'], location
    await environment.langbot.call('DELETE', '/mcp/servers/needy')
    assert (await location_of(environment, NAME))['greeting'] == 'good morning', 'the other server is not affected'


async def langbot_reconnects_to_a_restarted_runtime(environment: Environment) -> None:
    environment.runtime.kill()
    await until_unavailable(environment)
    environment.start_runtime()
    await until_available(environment)
    await mcp_servers.save_again(environment, NAME)
    assert (await location_of(environment, NAME))['cwd'].startswith('/workspace/.mcp/')


async def location_of(environment: Environment, name: str) -> dict:
    """Reads a resource of the server through the relay: its directory, environment and files."""
    read = await environment.langbot.post(f'/mcp/servers/{name}/resources/read', {'uri': 'e2e://place'})
    (content,) = read['contents']
    return json.loads(content['text'])


STEPS = [
    the_runtime_is_available,
    agents_have_the_tools,
    an_mcp_server_connects,
    a_resource_of_an_mcp_server_is_read,
    an_mcp_server_installs_its_requirements,
    langbot_reconnects_to_a_restarted_runtime,
]
