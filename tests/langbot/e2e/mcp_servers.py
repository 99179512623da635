"""Adds stdio MCP servers to LangBot over its API."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

from environment import Environment, until

SOURCE = pathlib.Path(__file__).parent / 'mcp_server'
TOOLS = ['add_numbers', 'long_line', 'where_am_i']
# A small pure-Python package that no base system includes.
PACKAGE = ('iniconfig', '2.1.0')
# LangBot's limit for a start is two minutes, and longer with an installation.
CONNECT_SEC = 180.0


async def add_server(environment: Environment, name: str) -> dict[str, Any]:
    """Adds a copy of the server in the source tree."""
    return await _add(environment, name, _copy(environment, name))


async def add_server_with_requirements(environment: Environment, name: str) -> dict[str, Any]:
    """Adds a copy that needs a package, which LangBot installs with pip."""
    directory = _copy(environment, name)
    package, version = PACKAGE
    (directory / 'requirements.txt').write_text(f'{package}=={version}\n')
    server = directory / 'server.py'
    text = server.read_text().replace('import json\n', f'import {package}\nimport json\n', 1)
    # Tools of different servers need different names.
    server.write_text(text.replace("'add_numbers'", "'add_with_package'"))
    return await _add(environment, name, directory)


async def save_again(environment: Environment, name: str) -> dict[str, Any]:
    server = (await environment.langbot.get(f'/mcp/servers/{name}'))['server']
    saved = {key: server[key] for key in ('name', 'mode', 'enable', 'extra_args')}
    await environment.langbot.put(f'/mcp/servers/{name}', saved)
    return await connected(environment, name)


async def connected(environment: Environment, name: str) -> dict[str, Any]:
    """Waits until the server is connected. Requests a test when LangBot has stopped retrying."""

    async def connected_info() -> dict[str, Any] | None:
        info = (await environment.langbot.get(f'/mcp/servers/{name}'))['server']['runtime_info']
        if info is None or info['status'] == 'connecting':
            return None
        if info['status'] == 'connected':
            return info if info['tools'] else None
        if info.get('error_phase') == 'box_unavailable':
            await environment.langbot.post(f'/mcp/servers/{name}/test', {})
            return None
        raise AssertionError(f'the server failed: {info}')

    return await until('the MCP server is connected', connected_info, timeout_sec=CONNECT_SEC, pause_sec=1)


def _copy(environment: Environment, name: str) -> pathlib.Path:
    # In a root that LangBot allows by default; LangBot copies the directory into the workspace.
    directory = environment.home / 'data/box/mcp-sources' / name
    shutil.copytree(SOURCE, directory, ignore=shutil.ignore_patterns('__pycache__'))
    return directory


async def _add(environment: Environment, name: str, directory: pathlib.Path) -> dict[str, Any]:
    await environment.langbot.post(
        '/mcp/servers',
        {
            'name': name,
            'mode': 'stdio',
            'enable': True,
            'extra_args': {
                'command': 'python3',
                'args': [str(directory / 'server.py')],
                'env': {'GREETING': 'good morning'},
            },
        },
    )
    return await connected(environment, name)
