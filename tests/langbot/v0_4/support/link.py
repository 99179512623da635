"""A connection to a runtime, set up like LangBot's connector."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from langbot_plugin.box.actions import LangBotToBoxAction
from langbot_plugin.box.client import ActionRPCBoxClient
from langbot_plugin.entities.io.actions.enums import CommonAction
from langbot_plugin.runtime.io.connection import Connection
from langbot_plugin.runtime.io.controller import Controller
from langbot_plugin.runtime.io.controllers.stdio.client import StdioClientController
from langbot_plugin.runtime.io.controllers.ws.client import WebSocketClientController
from langbot_plugin.runtime.io.handler import Handler

_CONNECT_SEC = 30.0


def box_config(host_root: Path) -> dict:
    """The `box` section of LangBot's configuration as it reaches a runtime: all but `runtime`."""
    return {
        'enabled': True,
        'backend': 'local',
        'local': {
            'profile': 'default',
            'image': '',
            'host_root': str(host_root),
            'default_workspace': '',
            'skills_root': 'skills',
            'allowed_mount_roots': [str(host_root), '/tmp'],
            'workspace_quota_mb': None,
        },
        'e2b': {'api_key': '', 'api_url': '', 'template': ''},
    }


class Link:
    """A connected client. Close it, or use it in `async with`."""

    def __init__(self, controller: Controller):
        self.client = ActionRPCBoxClient(logging.getLogger('langbot'))
        self.handler: Handler | None = None
        self.controller = controller
        self.config: dict = {}
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task | None = None

    @classmethod
    async def by_ws(cls, address: str, config: dict) -> Link:
        async def failed(_controller: Controller, error: Exception | None) -> None:
            link._settle(error or ConnectionError('the connection could not be made'))

        link = cls(WebSocketClientController(f'ws://{address}/rpc/ws', failed))
        return await link._open(config)

    @classmethod
    async def by_stdio(
        cls, command: str, args: list[str], env: dict[str, str], directory: Path, config: dict
    ) -> Link:
        link = cls(StdioClientController(command, args, env, working_dir=str(directory)))
        return await link._open(config)

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process of the runtime, if it is a child of the test."""
        process = self.controller.process
        assert process is not None
        return process

    async def _open(self, config: dict) -> Link:
        self.config = config
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
            if self.config:
                await self.handler.call_action(LangBotToBoxAction.INIT, self.config)
            self._settle(None)
            await reading
        except Exception as error:
            self._settle(error)
        finally:
            reading.cancel()

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
