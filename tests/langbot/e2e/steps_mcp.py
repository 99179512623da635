"""A stdio MCP server in a box, and a restart of the runtime after a crash."""

from __future__ import annotations

import json

import mcp_servers
from fake_model import ToolCall
from environment import Environment, until, until_available, until_unavailable

NAME = 'arithmetic'


async def an_mcp_server_connects(environment: Environment) -> None:
    info = await mcp_servers.add_server(environment, NAME)
    assert sorted(tool['name'] for tool in info['tools']) == mcp_servers.TOOLS, info
    assert info['tool_count'] == 3, info
    assert info['box_session_id'] == 'mcp-shared', info
    sessions = {session['session_id']: session for session in await environment.langbot.get('/box/sessions')}
    shared = sessions['mcp-shared']
    assert shared['persistent'] is True and shared['network'] == 'on', shared
    status = await environment.langbot.get('/box/status')
    assert status['managed_processes'] == 1, status


async def an_mcp_tool_from_a_chat(environment: Environment) -> None:
    canary = environment.paths.work / 'canary'
    canary.write_text('of the host')
    turn = await environment.chat.send(
        ToolCall('add_numbers', {'a': 19, 'b': 23}),
        ToolCall('where_am_i', {'path': str(canary)}),
    )
    assert turn.results[0] == '42', turn.results
    location = json.loads(turn.results[1])
    assert location['cwd'].startswith('/workspace/.mcp/'), location
    assert location['sees_path'] is False, location
    assert location['greeting'] == 'good morning', location

    if environment.on_boxwood:
        # The relay of LangBot Box fails at lines of 64 KiB.
        turn = await environment.chat.send(ToolCall('long_line', {'length': 200_000}))
        assert turn.results[0] == 'x' * 200_000, len(turn.results[0])


async def an_mcp_server_installs_its_requirements(environment: Environment) -> None:
    """LangBot installs the requirements with pip in the box, over the network of the box."""
    environment.require_package_installation()
    info = await mcp_servers.add_server_with_requirements(environment, 'needy')
    assert 'add_with_package' in [tool['name'] for tool in info['tools']], info
    turn = await environment.chat.send(ToolCall('add_with_package', {'a': 2, 'b': 2}))
    assert turn.results == ['4'], turn.results
    await environment.langbot.call('DELETE', '/mcp/servers/needy')


async def langbot_reconnects_to_a_restarted_runtime(environment: Environment) -> None:
    skills = await names_of_skills(environment)
    environment.runtime.kill()
    await until_unavailable(environment)
    turn = await environment.chat.send(ToolCall('exec', {'command': 'echo unused'}))
    assert turn.results[0].startswith('err: '), turn.results

    environment.start_runtime()
    await until_available(environment)
    seen = await environment.exec('echo back again; cat notes/poem.txt')
    assert seen['ok'] is True, seen
    assert seen['stdout'].startswith('back again\nfirst line\n2nd line'), seen
    assert await names_of_skills(environment) == skills


async def saving_an_mcp_server_reconnects_it(environment: Environment) -> None:
    # This version of LangBot does not detect a broken relay, with any runtime: it reports the server as
    # connected until it is saved again.
    await mcp_servers.save_again(environment, NAME)
    turn = await environment.chat.send(ToolCall('add_numbers', {'a': 1, 'b': 2}))
    assert turn.results == ['3'], turn.results

    await environment.langbot.call('DELETE', f'/mcp/servers/{NAME}')

    async def is_gone() -> bool:
        return (await environment.langbot.get('/box/status'))['managed_processes'] == 0

    await until('the process of a deleted server is gone', is_gone, timeout_sec=30)


async def names_of_skills(environment: Environment) -> set[str]:
    return {skill['name'] for skill in (await environment.langbot.get('/skills'))['skills']}


STEPS = [
    an_mcp_server_connects,
    an_mcp_tool_from_a_chat,
    an_mcp_server_installs_its_requirements,
    langbot_reconnects_to_a_restarted_runtime,
    saving_an_mcp_server_reconnects_it,
]
