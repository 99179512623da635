"""One connection to a runtime, set up like LangBot's connector with SDK 0.7."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langbot_plugin.box.client import ActionRPCBoxClient
from langbot_plugin.box.security import (
    BOX_CONTROL_TOKEN_HEADER,
    BOX_INSTANCE_HEADER,
    BOX_PLACEMENT_GENERATION_HEADER,
    BOX_WORKSPACE_HEADER,
)
from langbot_plugin.entities.io.actions.enums import CommonAction
from langbot_plugin.entities.io.context import ActionContext
from langbot_plugin.runtime.io.connection import Connection
from langbot_plugin.runtime.io.controller import Controller
from langbot_plugin.runtime.io.controllers.stdio.client import StdioClientController
from langbot_plugin.runtime.io.controllers.ws.client import WebSocketClientController
from langbot_plugin.runtime.io.handler import Handler

_CONNECT_SEC = 30.0


@dataclass(frozen=True)
class Platform:
    """A LangBot instance: its id, and the control token that it shares with the runtime, if any."""

    instance: str = 'platform-1'
    token: str = ''

    def headers(self, context: ActionContext | None = None) -> dict[str, str]:
        """Headers of the handshake; with a context, those of the relay."""
        headers = {BOX_INSTANCE_HEADER: self.instance}
        if self.token:
            headers[BOX_CONTROL_TOKEN_HEADER] = self.token
        if context is not None:
            headers[BOX_WORKSPACE_HEADER] = context.workspace_uuid
            headers[BOX_PLACEMENT_GENERATION_HEADER] = str(context.placement_generation)
        return headers

    def context(self, workspace: str, generation: int = 1) -> ActionContext:
        return ActionContext(
            instance_uuid=self.instance,
            workspace_uuid=workspace,
            placement_generation=generation,
        )


def box_config(host_root: Path, **sections: Any) -> dict:
    """The `box` section of LangBot's configuration as it reaches a runtime: all but `runtime`."""
    return {
        'enabled': True,
        'backend': 'local',
        'local': {
            'profile': 'default',
            'image': '',
            'host_root': str(host_root),
            'default_workspace': '',
            'allowed_mount_roots': [str(host_root), '/tmp'],
            'workspace_quota_mb': None,
        },
        'docker': {'cpu_limit_enabled': True},
        'e2b': {'api_key': '', 'api_url': '', 'template': ''},
    } | sections


class Link:
    """A connected client. Close it, or use it in `async with`."""

    def __init__(self, controller: Controller):
        self.client = ActionRPCBoxClient(logging.getLogger('langbot'))
        self.handler: Handler
        self.controller = controller
        self.closed_with: tuple[int | None, str | None] | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task | None = None

    @classmethod
    async def by_ws(cls, address: str, headers: dict[str, str]) -> Link:
        async def failed(_controller: Controller, error: Exception | None) -> None:
            link._settle(error or ConnectionError('the connection could not be made'))

        link = cls(WebSocketClientController(f'ws://{address}/rpc/ws', failed, headers))
        return await link._open()

    @classmethod
    async def by_stdio(
        cls, command: str, args: list[str], env: dict[str, str], directory: Path
    ) -> Link:
        link = cls(StdioClientController(command, args, env, working_dir=str(directory)))
        return await link._open()

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process of the runtime, if it is a child of the test."""
        return self.controller.process

    async def _open(self) -> Link:
        self._task = asyncio.create_task(self.controller.run(self._on_connection))
        self._task.add_done_callback(
            lambda task: None if task.cancelled() else self._settle(task.exception())
        )
        try:
            await asyncio.wait_for(asyncio.shield(self._connected), _CONNECT_SEC)
        except BaseException:
            await self.close()
            raise
        return self

    async def _on_connection(self, connection: Connection) -> None:
        self.handler = Handler(connection)
        self.client.set_handler(self.handler)
        reading = asyncio.create_task(self.handler.run())
        try:
            await self.handler.call_action(CommonAction.PING, {})
            self._settle(None)
            await reading
        except Exception as error:
            self._settle(error)
        finally:
            reading.cancel()
            socket = getattr(connection, 'websocket', None)
            if socket is not None:
                self.closed_with = (socket.close_code, socket.close_reason)

    def _settle(self, error: BaseException | None) -> None:
        if self._connected.done():
            return
        if error is None:
            self._connected.set_result(None)
        else:
            self._connected.set_exception(error)

    async def until_closed(self, within: float) -> None:
        """Waits until the runtime closes the connection."""
        assert self._task is not None
        await asyncio.wait_for(asyncio.shield(self._task), within)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
            self._task = None

    async def __aenter__(self) -> Link:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
