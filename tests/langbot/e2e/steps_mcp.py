"""A stdio MCP server in a box, and what happens when the runtime dies under everything.

Comes in: the stage. Goes out: nothing, or an assertion that failed. Never here: the server itself.
"""

from __future__ import annotations

import json

import mcp_servers
from fake_model import ToolCall
from stage import Stage, until, until_green, until_red

NAME = 'arithmetic'


async def an_mcp_server_connects(stage: Stage) -> None:
    info = await mcp_servers.add_server(stage, NAME)
    assert sorted(tool['name'] for tool in info['tools']) == mcp_servers.TOOLS, info
    assert info['tool_count'] == 3, info
    assert info['box_session_id'] == 'mcp-shared', info
    sessions = {session['session_id']: session for session in await stage.langbot.get('/box/sessions')}
    shared = sessions['mcp-shared']
    assert shared['persistent'] is True and shared['network'] == 'on', shared
    status = await stage.langbot.get('/box/status')
    assert status['managed_processes'] == 1, status


async def an_mcp_tool_from_a_chat(stage: Stage) -> None:
    canary = stage.places.work / 'canary'
    canary.write_text('of the host')
    turn = await stage.chat.ask(
        ToolCall('add_numbers', {'a': 19, 'b': 23}),
        ToolCall('where_am_i', {'path': str(canary)}),
    )
    assert turn.results[0] == '42', turn.results
    place = json.loads(turn.results[1])
    assert place['cwd'].startswith('/workspace/.mcp/'), place
    assert place['sees_path'] is False, place
    assert place['greeting'] == 'good morning', place

    if stage.on_boxwood:
        # The seed's relay gives up at 64 KiB a line.
        turn = await stage.chat.ask(ToolCall('long_line', {'length': 200_000}))
        assert turn.results[0] == 'x' * 200_000, len(turn.results[0])


async def an_mcp_server_installs_what_it_needs(stage: Stage) -> None:
    """LangBot has pip install a server's requirements in its box, over the box's own network."""
    stage.needs_a_root_of_its_own()
    info = await mcp_servers.add_server_with_requirements(stage, 'needy')
    assert 'add_with_package' in [tool['name'] for tool in info['tools']], info
    turn = await stage.chat.ask(ToolCall('add_with_package', {'a': 2, 'b': 2}))
    assert turn.results == ['4'], turn.results
    await stage.langbot.call('DELETE', '/mcp/servers/needy')


async def a_killed_runtime_comes_back(stage: Stage) -> None:
    skills = await names_of_skills(stage)
    stage.runtime.kill()
    await until_red(stage)
    turn = await stage.chat.ask(ToolCall('exec', {'command': 'echo nobody'}))
    assert turn.results[0].startswith('err: '), turn.results

    stage.start_runtime()
    await until_green(stage)
    seen = await stage.exec('echo back again; cat notes/poem.txt')
    assert seen['ok'] is True, seen
    assert seen['stdout'].startswith('back again\nfirst line\n2nd line'), seen
    assert await names_of_skills(stage) == skills


async def mcp_servers_come_back_when_saved(stage: Stage) -> None:
    # This LangBot never notices a relay that broke: it shows the server as connected until somebody
    # saves it again, whatever the runtime is.
    await mcp_servers.save_again(stage, NAME)
    turn = await stage.chat.ask(ToolCall('add_numbers', {'a': 1, 'b': 2}))
    assert turn.results == ['3'], turn.results

    await stage.langbot.call('DELETE', f'/mcp/servers/{NAME}')

    async def is_gone() -> bool:
        return (await stage.langbot.get('/box/status'))['managed_processes'] == 0

    await until('the process of a deleted server is gone', is_gone, patience_sec=30)


async def names_of_skills(stage: Stage) -> set[str]:
    return {skill['name'] for skill in (await stage.langbot.get('/skills'))['skills']}


STEPS = [
    an_mcp_server_connects,
    an_mcp_tool_from_a_chat,
    an_mcp_server_installs_what_it_needs,
    a_killed_runtime_comes_back,
    mcp_servers_come_back_when_saved,
]
