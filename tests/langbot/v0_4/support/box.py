"""`Box`: the client of the module's runtime, with a new session id for each test."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import websockets
from langbot_plugin.box.actions import LangBotToBoxAction as Action
from langbot_plugin.box.client import ActionRPCBoxClient
from langbot_plugin.box.errors import BoxSessionNotFoundError
from langbot_plugin.box.models import (
    BoxExecutionResult,
    BoxManagedProcessInfo,
    BoxManagedProcessSpec,
    BoxSpec,
)
from langbot_plugin.runtime.io.handler import Handler

from support.link import Link, box_config
from support.runtime import Runtime


class Box:
    def __init__(self, runtime: Runtime, host_root: Path):
        self.runtime = runtime
        self.host_root = host_root
        self.session = f'session-{uuid.uuid4().hex[:8]}'

    @property
    def client(self) -> ActionRPCBoxClient:
        return self.runtime.link.client

    @property
    def handler(self) -> Handler:
        handler = self.runtime.link.handler
        assert handler is not None
        return handler

    @property
    def skills_root(self) -> Path:
        return self.host_root / 'skills'

    @property
    def config(self) -> dict:
        return box_config(self.host_root)

    async def call(self, action: Action, data: dict[str, Any], timeout: float = 15.0) -> dict:
        """Sends any action with any data; the client translates errors."""
        return await self.client._call(action, data, timeout)

    def spec(self, cmd: str = '', **fields: Any) -> BoxSpec:
        return BoxSpec(**({'cmd': cmd, 'session_id': self.session} | fields))

    async def create(self, **fields: Any) -> dict:
        return await self.client.create_session(self.spec(**fields))

    async def run(self, cmd: str, **fields: Any) -> BoxExecutionResult:
        return await self.client.execute(self.spec(cmd, **fields))

    async def start(self, command: str, *args: str, **fields: Any) -> BoxManagedProcessInfo:
        spec = BoxManagedProcessSpec(command=command, args=list(args), **fields)
        return await self.client.start_managed_process(self.session, spec)

    async def shell(self, script: str, **fields: Any) -> BoxManagedProcessInfo:
        return await self.start('sh', '-c', script, **fields)

    async def process(self, process_id: str = 'default') -> BoxManagedProcessInfo:
        return await self.client.get_managed_process(self.session, process_id)

    def relay_url(self, process_id: str = 'default', session_id: str | None = None) -> str:
        return self.client.get_managed_process_websocket_url(
            session_id or self.session, self.runtime.url, process_id
        )

    def attach(self, process_id: str = 'default', **options: Any) -> websockets.connect:
        """Attaches a WebSocket client. LangBot's MCP client also requests the subprotocol `mcp`."""
        options = {'proxy': None, 'max_size': None} | options
        return websockets.connect(self.relay_url(process_id), **options)

    async def connect(self) -> Link:
        """Connects another client over WebSocket, which works with either transport."""
        return await Link.by_ws(self.runtime.address, {})

    async def clean_up(self) -> None:
        for session in await self.client.get_sessions():
            with contextlib.suppress(BoxSessionNotFoundError):
                await self.client.delete_session(session['session_id'])


async def eventually(
    request: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], within: float = 30.0
) -> Any:
    """Repeats a request until its result satisfies `holds`; fails with the last result."""
    deadline = time.monotonic() + within
    while not holds(result := await request()):
        assert time.monotonic() < deadline, f'not within {within} s; last: {result!r}'
        await asyncio.sleep(0.05)
    return result


async def until_exists(path: Path) -> None:
    """Waits for a file that a command writes."""

    async def exists() -> bool:
        return path.exists()

    await eventually(exists, bool)


def count(command: str) -> str:
    """A command that counts the processes in its box whose command line starts with `command`."""
    lines = 'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " < $f; echo; done 2>/dev/null'
    # Without a match `grep` prints 0 and exits with 1; `true` hides that.
    return f"{{ {lines}; }} | grep -c '^{command}'; true"
