"""Measures LangBot's published Box client with several runtimes.

Each round measures every runtime once, in random order, so that load on the machine and work that a runtime
does after its response affect all of them equally.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import tempfile
import time

import websockets
from langbot_plugin.box.client import ActionRPCBoxClient
from langbot_plugin.box.models import BoxManagedProcessSpec, BoxSpec
from langbot_plugin.entities.io.actions.enums import CommonAction
from langbot_plugin.runtime.io.controllers.ws.client import WebSocketClientController
from langbot_plugin.runtime.io.handler import Handler

CONNECT_SECONDS = 30.0
SESSIONS_AT_ONCE = 32
LINE = '{"jsonrpc":"2.0","id":1,"method":"ping"}'


class Side:
    """One runtime with a client that is connected like LangBot's."""

    def __init__(self, name: str, address: str):
        self.name = name
        self.address = address
        self.client = ActionRPCBoxClient(logging.getLogger(name))
        # LangBot mounts a host directory into every session.
        self.workspace = tempfile.mkdtemp(prefix=f'workspace-{name}-', dir=os.getcwd())
        self._tasks: list[asyncio.Task] = []

    async def connect(self) -> None:
        connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def on_connection(connection) -> None:
            handler = Handler(connection)
            self.client.set_handler(handler)
            running = asyncio.create_task(handler.run())
            try:
                await self.ping()
                connected.set_result(None)
            except Exception as error:
                connected.set_exception(error)
            await running

        async def on_failure(_controller, error) -> None:
            if not connected.done():
                connected.set_exception(error or ConnectionError('no reason given'))

        controller = WebSocketClientController(f'ws://{self.address}/rpc/ws', on_failure)
        self._tasks.append(asyncio.create_task(controller.run(on_connection)))
        await asyncio.wait_for(connected, CONNECT_SECONDS)

    def disconnect(self) -> None:
        for task in self._tasks:
            task.cancel()

    def spec(self, session: str, cmd: str = '') -> BoxSpec:
        return BoxSpec(session_id=session, cmd=cmd, host_path=self.workspace)

    async def ping(self) -> None:
        await self.client.handler.call_action(CommonAction.PING, {})

    async def exec_true(self, session: str) -> None:
        result = await self.client.execute(self.spec(session, 'true'))
        if not result.ok:
            raise RuntimeError(f'`true` exited with {result.exit_code}: {result.stderr}')

    async def warm_session(self, session: str) -> None:
        """Creates a session, and checks that it runs commands correctly."""
        await self.client.create_session(self.spec(session))
        result = await self.client.execute(self.spec(session, 'echo box; exit 3'))
        if (result.exit_code, result.stdout) != (3, 'box'):
            raise RuntimeError(
                f'a command that prints `box` and exits with 3 gave {result.exit_code}, '
                f'`{result.stdout}`, `{result.stderr}`'
            )

    async def delete(self, session: str) -> None:
        await self.client.delete_session(session)


class PingRow:
    """The smallest request: the time of the client and of the transport."""

    rounds, settle = 2000, 0.0

    async def prepare(self, side: Side) -> None:
        del side

    async def once(self, side: Side) -> None:
        await side.ping()

    async def finish(self, side: Side) -> None:
        del side


class ExecRow:
    """`true` in an existing session."""

    rounds, settle = 100, 0.02
    session = 'bench-exec'

    async def prepare(self, side: Side) -> None:
        await side.warm_session(self.session)

    async def once(self, side: Side) -> None:
        await side.exec_true(self.session)

    async def finish(self, side: Side) -> None:
        await side.delete(self.session)


class CreateRow:
    """Create, first `true`, delete."""

    # With pauses, because a tight loop hides some costs of a start.
    rounds, settle = 50, 0.06

    def __init__(self):
        self.number = 0

    async def prepare(self, side: Side) -> None:
        del side

    async def once(self, side: Side) -> None:
        self.number += 1
        session = f'bench-create-{self.number}'
        await side.client.create_session(side.spec(session))
        await side.exec_true(session)
        await side.delete(session)

    async def finish(self, side: Side) -> None:
        del side


class RelayRow:
    """One line through `cat` and back, over a relay like that of LangBot's MCP client."""

    rounds, settle = 2000, 0.0
    session = 'bench-relay'

    def __init__(self):
        self.sockets = {}

    async def prepare(self, side: Side) -> None:
        await side.client.create_session(side.spec(self.session))
        await side.client.start_managed_process(
            self.session, BoxManagedProcessSpec(command='cat')
        )
        url = side.client.get_managed_process_websocket_url(
            self.session, f'http://{side.address}'
        )
        self.sockets[side.name] = await websockets.connect(
            url, subprotocols=['mcp'], proxy=None
        )

    async def once(self, side: Side) -> None:
        socket = self.sockets[side.name]
        await socket.send(LINE)
        line = await asyncio.wait_for(socket.recv(), 15.0)
        if line != LINE:
            raise RuntimeError(f'the relay returned {line!r}')

    async def finish(self, side: Side) -> None:
        socket = self.sockets.pop(side.name, None)
        if socket is not None:
            await socket.close()
        await side.delete(self.session)


class AtOnceRow:
    """`true` in many sessions concurrently, until the last response."""

    rounds, settle = 10, 0.1

    def sessions(self) -> list[str]:
        return [f'bench-many-{number}' for number in range(SESSIONS_AT_ONCE)]

    async def prepare(self, side: Side) -> None:
        # Sequentially: LangBot Box creates sessions under one lock, and the client has a timeout
        # of 15 seconds.
        for session in self.sessions():
            await side.warm_session(session)

    async def once(self, side: Side) -> None:
        await asyncio.gather(*(side.exec_true(session) for session in self.sessions()))

    async def finish(self, side: Side) -> None:
        for session in self.sessions():
            await side.delete(session)


ROWS = {
    'ping': PingRow,
    'exec': ExecRow,
    'create': CreateRow,
    'relay': RelayRow,
    'at-once': AtOnceRow,
}


def describe(error: BaseException) -> str:
    return f'{type(error).__name__}: {error}'


async def measure(name: str, sides: list[Side], divisor: int, results: dict) -> None:
    """Adds the times of each side to `results`, or the error if it fails; a failed side is not measured further."""
    row = ROWS[name]()
    active: dict[str, Side] = {}
    for side in sides:
        print(f'preparing: {name} on {side.name}', file=sys.stderr)
        try:
            await row.prepare(side)
            active[side.name] = side
        except Exception as error:
            results[side.name][name] = {'error': describe(error)}
    times = {side.name: {'whole': [], 'client': []} for side in sides}
    order = list(active)
    shuffle = random.Random(name).shuffle
    rounds = max(row.rounds // divisor, 5)
    warm_up = min(max(rounds // 10, 1), 20)
    for number in range(warm_up + rounds):
        shuffle(order)
        for side_name in order:
            if side_name not in active:
                continue
            await asyncio.sleep(row.settle)
            computed, started = time.process_time(), time.perf_counter()
            try:
                await row.once(active[side_name])
            except Exception as error:
                results[side_name][name] = {'error': describe(error)}
                del active[side_name]
                continue
            if number >= warm_up:
                times[side_name]['whole'].append(time.perf_counter() - started)
                times[side_name]['client'].append(time.process_time() - computed)
    for side_name in active:
        results[side_name][name] = {'times': times[side_name]}
    for side in sides:
        try:
            await row.finish(side)
        except Exception as error:
            # The clean-up after a failure may fail too; the result is already recorded.
            print(f'after {name} on {side.name}: {describe(error)}', file=sys.stderr)


async def run(arguments: argparse.Namespace) -> dict:
    results: dict[str, dict] = {}
    sides = []
    for name, _, address in (text.partition('=') for text in arguments.side):
        results[name] = {}
        side = Side(name, address)
        try:
            await side.connect()
            sides.append(side)
        except Exception as error:
            why = f'the client could not connect: {describe(error)}'
            results[name] = {row: {'error': why} for row in arguments.row}
    for row in arguments.row:
        await measure(row, sides, arguments.divisor, results)
    for side in sides:
        side.disconnect()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--side', action='append', required=True, metavar='NAME=HOST:PORT')
    parser.add_argument('--row', action='append', required=True, choices=list(ROWS))
    parser.add_argument('--divisor', type=int, default=1, help='divide the number of rounds by this')
    json.dump(asyncio.run(run(parser.parse_args())), sys.stdout)


if __name__ == '__main__':
    main()
