"""How fast this machine reads and writes memory: copies in several processes at once."""

from __future__ import annotations

import ctypes
import multiprocessing
import time

from fleet.sizes import MIB, Bandwidth

BLOCK = 64 * MIB  # larger than most caches' share of one core
SECONDS = 0.5


def measure_bandwidth(processes: int) -> Bandwidth:
    """Return bytes moved a second (read plus written) by `processes` copying at once.

    A copy moves each byte twice. Takes 128 MiB for each process.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        rates = pool.map(_copy_rate, [SECONDS] * processes, chunksize=1)
    return Bandwidth(int(sum(rates)))


def _copy_rate(seconds: float) -> float:
    source, target = (ctypes.create_string_buffer(BLOCK) for _ in range(2))
    ctypes.memset(source, 1, BLOCK)
    ctypes.memmove(target, source, BLOCK)  # so that all pages are there
    copies, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        ctypes.memmove(target, source, BLOCK)
        copies += 1
    return 2 * copies * BLOCK / (time.perf_counter() - began)
