"""The official Python client: every tool, over both transports, in both protocol versions."""

from __future__ import annotations

import json

import pytest

from support.clients import PROTOCOLS, TRANSPORTS, client
from support.every_tool import NAMES, calls

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_every_tool(runtime, transport: str, protocol: str):
    meta = {'io.boxwood/session': f'py-{transport}-{protocol}'}
    async with client(runtime, transport, protocol) as server:
        expected = '2025-11-25' if protocol == 'legacy' else protocol
        assert server.protocol_version == expected
        assert server.server_info is None or server.server_info.name == 'boxwood'
        listed = await server.list_tools()
        assert {tool.name for tool in listed.tools} == NAMES
        for tool in listed.tools:
            assert tool.output_schema and tool.title and tool.annotations is not None
        for call in calls(f'py-{transport}-{protocol}'):
            result = await server.call_tool(call.name, call.arguments, meta=meta)
            assert not result.is_error, f'{call.name}: {result.content}'
            assert call.check(result.structured_content), f'{call.name}: {result}'
            assert json.loads(result.content[0].text) == result.structured_content


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_failures_are_tool_results(runtime, transport: str, protocol: str):
    async with client(runtime, transport, protocol) as server:
        meta = {'io.boxwood/session': f'fail-{transport}-{protocol}'}
        failed = await server.call_tool('exec', {'command': 'echo no; exit 3'}, meta=meta)
        assert failed.is_error
        assert failed.structured_content['exit_code'] == 3
        assert failed.structured_content['stdout'] == 'no\n'
        missing = await server.call_tool('read', {'path': '/workspace/none'}, meta=meta)
        assert missing.is_error and missing.structured_content['ok'] is False
        outside = await server.call_tool('read', {'path': '/etc/passwd'}, meta=meta)
        assert outside.is_error and '/workspace' in outside.content[0].text
        unknown = await server.call_tool('exec', {'command': 'true', 'image': 'x'}, meta=meta)
        assert unknown.is_error and 'image' in unknown.content[0].text


async def test_the_instructions_mention_the_tools(runtime):
    async with client(runtime, 'http', 'legacy') as server:
        assert server.instructions and 'exec' in server.instructions
