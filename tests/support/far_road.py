"""A road to a host that takes its time: each byte arrives later, in both directions.

A relay in this process instead of the kernel's netem, which not every machine has.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BLOCK = 2**16
END = b""


@contextmanager
def far_roads(addresses: Sequence[str], delay_s: float, port: int = 22) -> Iterator[list[int]]:
    """Yield a local port for each address; a round trip through it takes `delay_s` longer."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def open_all() -> list[asyncio.Server]:
        return [await _relay(address, port, delay_s / 2) for address in addresses]

    servers = asyncio.run_coroutine_threadsafe(open_all(), loop).result()
    try:
        yield [int(server.sockets[0].getsockname()[1]) for server in servers]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _relay(address: str, port: int, late_s: float) -> asyncio.Server:
    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_connection(address, port)
        await asyncio.gather(_carry(near, there, late_s), _carry(far, back, late_s))

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, late_s: float) -> None:
    """Pass on what comes, `late_s` after it came; later bytes do not wait for earlier ones."""
    loop = asyncio.get_running_loop()
    on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, block = await on_its_way.get()
            await asyncio.sleep(due - loop.time())
            if block == END:
                sink.close()
                return
            sink.write(block)

    arriving = asyncio.create_task(arrive())
    block = b"first"
    while block != END:
        with suppress(ConnectionError):
            block = await source.read(BLOCK)
            on_its_way.put_nowait((loop.time() + late_s, block))
            continue
        block = END
        on_its_way.put_nowait((loop.time(), END))
    await arriving
