"""Which box the calls of a client use."""

from __future__ import annotations

import json
import urllib.request

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from harness import daemon
from support.clients import client, stdio_arguments, url

pytestmark = pytest.mark.anyio


def sessions(runtime: daemon.Daemon) -> set[str]:
    with urllib.request.urlopen(f'{url(runtime)}/v1/sessions') as answer:
        found = json.load(answer)
    found = found['sessions'] if isinstance(found, dict) else found
    return {session['session_id'] for session in found}


async def session_used_by(server: Client, **meta) -> str:
    """The id of the session in which a call runs."""
    result = await server.call_tool('exec', {'command': 'true'}, meta=meta or None)
    assert not result.is_error, result
    return result.structured_content['session_id']


async def test_each_mcp_session_has_its_own_box(runtime):
    async with client(runtime, 'http', 'legacy') as one:
        async with client(runtime, 'http', 'legacy') as two:
            first, second = await session_used_by(one), await session_used_by(two)
            assert first != second
            assert first.startswith('mcp_') and second.startswith('mcp_')
            assert await session_used_by(one) == first


async def test_modern_clients_share_one_box_unless_one_is_named(runtime):
    async with client(runtime, 'http', '2026-07-28') as server:
        assert await session_used_by(server) == 'mcp_default'
        assert await session_used_by(server, **{'io.boxwood/session': 'chosen'}) == 'chosen'
    assert {'mcp_default', 'chosen'} <= sessions(runtime)


async def test_clients_in_one_directory_use_the_same_box(runtime, tmp_path):
    async def session_of(directory) -> str:
        server = StdioServerParameters(
            command=daemon.program(),
            args=stdio_arguments(runtime),
            env=daemon.environment(),
            cwd=directory,
        )
        async with Client(server, mode='legacy') as connected:
            return await session_used_by(connected)

    here = await session_of(tmp_path)
    assert here.startswith('mcp_')
    assert await session_of(tmp_path) == here
    assert await session_of(runtime.directory) != here


async def test_a_named_session_is_used(runtime):
    async with client(runtime, 'stdio', 'legacy', session='build') as server:
        assert await session_used_by(server) == 'build'
    async with client(runtime, 'stdio', '2026-07-28', session='build') as server:
        assert await session_used_by(server) == 'build'


async def test_two_clients_of_one_session_see_the_same_files(runtime):
    async with client(runtime, 'stdio', 'legacy', session='shared') as one:
        async with client(runtime, 'http', '2026-07-28') as two:
            await one.call_tool('write', {'path': '/workspace/note', 'content': 'x'})
            meta = {'io.boxwood/session': 'shared'}
            read = await two.read_resource('boxwood://workspace/note', meta=meta)
            assert read.contents[0].text == 'x'
            with anyio.fail_after(10):
                listed = await two.list_resources(meta=meta)
            assert [resource.name for resource in listed.resources] == ['note']
