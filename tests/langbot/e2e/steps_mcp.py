"""A stdio MCP server in a box, and what happens when the runtime dies under everything.

Comes in: the stage. Goes out: nothing, or an assertion that failed. Never here: the server itself.
"""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

from fake_model import ToolCall
from stage import Stage, until

SERVER = pathlib.Path(__file__).parent / 'mcp_server'
NAME = 'arithmetic'
TOOLS = ['add_numbers', 'long_line', 'where_am_i']
# LangBot gives a server two minutes to start.
CONNECT_SEC = 120.0
# LangBot waits 3 s, then 6, 12, … between two attempts.
RECONNECT_SEC = 60.0


async def an_mcp_server_connects(stage: Stage) -> None:
    # Below a root that LangBot allows by default; it copies the directory into the workspace.
    source = stage.home / 'data/box/mcp-source'
    shutil.copytree(SERVER, source, ignore=shutil.ignore_patterns('__pycache__'))
    await stage.langbot.post(
        '/mcp/servers',
        {
            'name': NAME,
            'mode': 'stdio',
            'enable': True,
            'extra_args': {
                'command': 'python3',
                'args': [str(source / 'server.py')],
                'env': {'GREETING': 'good morning'},
            },
        },
    )
    info = await connected(stage)
    assert sorted(tool['name'] for tool in info['tools']) == TOOLS, info
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
    source = stage.home / 'data/box/mcp-with-requirements'
    shutil.copytree(SERVER, source, ignore=shutil.ignore_patterns('__pycache__'))
    server = (source / 'server.py').read_text()
    (source / 'requirements.txt').write_text('iniconfig==2.1.0\n')
    (source / 'server.py').write_text(
        server.replace('import json\n', 'import iniconfig\nimport json\n').replace(
            "'add_numbers'", "'add_with_package'"
        )
    )
    await stage.langbot.post(
        '/mcp/servers',
        {
            'name': 'needy',
            'mode': 'stdio',
            'enable': True,
            'extra_args': {'command': 'python3', 'args': [str(source / 'server.py')], 'env': {}},
        },
    )
    info = await connected(stage, 'needy')
    assert 'add_with_package' in [tool['name'] for tool in info['tools']], info
    turn = await stage.chat.ask(ToolCall('add_with_package', {'a': 2, 'b': 2}))
    assert turn.results == ['4'], turn.results
    await stage.langbot.call('DELETE', '/mcp/servers/needy')


async def a_killed_runtime_comes_back(stage: Stage) -> None:
    skills = await names_of_skills(stage)
    stage.runtime.kill()

    async def is_red() -> dict[str, Any] | None:
        status = await stage.langbot.get('/box/status')
        return None if status['available'] else status

    red = await until('the status is red', is_red, patience_sec=30)
    assert red['connector_error'], red
    turn = await stage.chat.ask(ToolCall('exec', {'command': 'echo nobody'}))
    assert turn.results[0].startswith('err: '), turn.results

    stage.start_runtime()

    async def is_green() -> bool:
        return (await stage.langbot.get('/box/status'))['available']

    await until('LangBot reconnects', is_green, patience_sec=RECONNECT_SEC)
    seen = await stage.exec('echo back again; cat notes/poem.txt')
    assert seen['ok'] is True, seen
    assert seen['stdout'].startswith('back again\nfirst line\n2nd line'), seen
    assert await names_of_skills(stage) == skills


async def mcp_servers_come_back_when_saved(stage: Stage) -> None:
    # This LangBot never notices a relay that broke: it shows the server as connected until somebody
    # saves it again, whatever the runtime is.
    server = (await stage.langbot.get(f'/mcp/servers/{NAME}'))['server']
    saved = {key: server[key] for key in ('name', 'mode', 'enable', 'extra_args')}
    await stage.langbot.put(f'/mcp/servers/{NAME}', saved)
    await connected(stage)
    turn = await stage.chat.ask(ToolCall('add_numbers', {'a': 1, 'b': 2}))
    assert turn.results == ['3'], turn.results

    await stage.langbot.call('DELETE', f'/mcp/servers/{NAME}')

    async def is_gone() -> bool:
        return (await stage.langbot.get('/box/status'))['managed_processes'] == 0

    await until('the process of a deleted server is gone', is_gone, patience_sec=30)


async def names_of_skills(stage: Stage) -> set[str]:
    return {skill['name'] for skill in (await stage.langbot.get('/skills'))['skills']}


async def connected(stage: Stage, name: str = NAME) -> dict[str, Any]:
    """Waits for the server, and presses "test" when LangBot has given up, as a person would."""

    async def look() -> dict[str, Any] | None:
        server = (await stage.langbot.get(f'/mcp/servers/{name}'))['server']
        info = server['runtime_info']
        if info is None or info['status'] == 'connecting':
            return None
        if info['status'] == 'connected':
            return info if info['tools'] else None
        if info.get('error_phase') == 'box_unavailable':
            await stage.langbot.post(f'/mcp/servers/{name}/test', {})
            return None
        raise AssertionError(f'the server failed: {info}')

    return await until('the MCP server is connected', look, patience_sec=CONNECT_SEC, pause_sec=1)


STEPS = [
    an_mcp_server_connects,
    an_mcp_tool_from_a_chat,
    an_mcp_server_installs_what_it_needs,
    a_killed_runtime_comes_back,
    mcp_servers_come_back_when_saved,
]
