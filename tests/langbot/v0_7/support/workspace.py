"""`Workspace`: a workspace of the platform, with a new session id for each test."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import websockets
from langbot_plugin.box.actions import LangBotToBoxAction as Action
from langbot_plugin.box.client import ActionRPCBoxClient
from langbot_plugin.box.errors import BoxError
from langbot_plugin.box.models import (
    BoxExecutionResult,
    BoxManagedProcessInfo,
    BoxManagedProcessSpec,
    BoxSpec,
)
from langbot_plugin.box.tenancy import namespace_session_id
from langbot_plugin.entities.io.context import ActionContext

from support.runtime import Runtime


class Workspace:
    def __init__(self, runtime: Runtime, name: str = '', generation: int = 1):
        self.runtime = runtime
        self.name = name or f'workspace-{uuid.uuid4().hex[:8]}'
        self.generation = generation
        self.session = f'session-{uuid.uuid4().hex[:8]}'

    def moved(self, generation: int) -> Workspace:
        """The same workspace with another placement generation."""
        other = Workspace(self.runtime, self.name, generation)
        other.session = self.session
        return other

    @property
    def client(self) -> ActionRPCBoxClient:
        return self.runtime.link.client

    @property
    def context(self) -> ActionContext:
        return self.runtime.platform.context(self.name, self.generation)

    def physical(self, session: str | None = None) -> str:
        return namespace_session_id(self.context, session or self.session)

    async def call(self, action: Action, data: dict[str, Any], timeout: float = 15.0) -> dict:
        """Sends any action with any data; the client translates errors."""
        return await self.client._call(action, data, timeout, self.context)

    def spec(self, cmd: str = '', **fields: Any) -> BoxSpec:
        return BoxSpec(**({'cmd': cmd, 'session_id': self.session} | fields))

    async def create(self, **fields: Any) -> dict:
        return await self.client.create_session(self.spec(**fields), self.context)

    async def run(self, cmd: str, **fields: Any) -> BoxExecutionResult:
        return await self.client.execute(self.spec(cmd, **fields), self.context)

    async def start(self, command: str, *args: str, **fields: Any) -> BoxManagedProcessInfo:
        spec = BoxManagedProcessSpec(command=command, args=list(args), **fields)
        return await self.client.start_managed_process(self.session, spec, self.context)

    async def process(self, process_id: str = 'default') -> BoxManagedProcessInfo:
        return await self.client.get_managed_process(self.session, process_id, self.context)

    async def sessions(self) -> list[dict]:
        return await self.client.get_sessions(self.context)

    async def status(self) -> dict:
        return await self.client.get_status(self.context)

    def relay_url(self, process_id: str = 'default') -> str:
        return self.client.get_managed_process_websocket_url(
            self.session, self.runtime.url, process_id, self.context
        )

    def attach(self, process_id: str = 'default', **options: Any) -> websockets.connect:
        """Attaches a WebSocket client like LangBot's MCP client."""
        options = {
            'proxy': None,
            'max_size': None,
            'additional_headers': self.runtime.platform.headers(self.context),
        } | options
        return websockets.connect(self.relay_url(process_id), **options)

    async def clean_up(self) -> None:
        # A request of an older generation fails; its sessions were removed with it.
        with contextlib.suppress(BoxError):
            for session in await self.sessions():
                await self.client.delete_session(session['session_id'], self.context)


async def eventually(
    request: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], within: float = 30.0
) -> Any:
    """Repeats a request until its result satisfies `holds`; fails with the last result."""
    deadline = time.monotonic() + within
    while not holds(result := await request()):
        assert time.monotonic() < deadline, f'not within {within} s; last: {result!r}'
        await asyncio.sleep(0.05)
    return result
