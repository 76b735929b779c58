"""Look at `/metrics` again and again for a window of time, and keep what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.bench.window_figures import Scrape, window_figures
from fleet.effects.http import NoAnswer
from fleet.errors import OutsideError, UserError
from fleet.observe.parse_prometheus import Histogram, Metrics, parse_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.bench.results_folder import ResultsFolder
    from fleet.bench.window_figures import Window
    from fleet.effects.clock import Clock
    from fleet.effects.http import Answer, Http

FILE = "snapshots.jsonl"
INTERVAL_S = 10.0
LEAST_SCRAPES = 20  # also a short window is cut into parts


def watch_window(
    url: str,
    *,
    headers: Mapping[str, str],
    window_s: float,
    folder: ResultsFolder,
    http: Http,
    clock: Clock,
    tell: Callable[[str], None],
) -> Window:
    """Scrape `url`/metrics until the window is over; return its figures.

    A server that is down or loading in between is waited for. A window that was cut short
    cannot be gone on with: the time in between would be missing, so the folder must be new.
    Raises `OutsideError` when nothing answers at first, `UserError` for a folder in use.
    """
    with folder.locked():
        folder.refuse_used("window")
        if _scrape(url, headers, http, clock, 0.0).metrics is None:
            fix = "start it first; afterwards it may be down and come back"
            raise OutsideError("the server does not answer", where=f"{url}/metrics", fix=fix)
        every = min(INTERVAL_S, window_s / LEAST_SCRAPES)
        run = {"suite": "window", "url": url, "window_s": window_s, "every_s": every}
        folder.write_run({**run, "started": clock.now().isoformat(timespec="seconds")})
        begin = clock.monotonic()
        count = 0
        while True:
            scrape = _scrape(url, headers, http, clock, begin)
            folder.add_line(FILE, _as_json(scrape))
            count += 1
            left = window_s - (clock.monotonic() - begin)
            tell(f"watching {url}: {count} looks, {max(left, 0) / 60:.1f} min left")
            if left <= 0:
                break
            clock.sleep(min(every, max(left, 0.01)))
        return read_window(folder)


def read_window(folder: ResultsFolder) -> Window:
    """Return the figures of a window's folder. Raises `UserError` when there are none."""
    window = window_figures([_from_json(line) for line in folder.lines(FILE)])
    if window is None:
        raise UserError(
            "the server answered fewer than two times",
            where=str(folder.path),
            fix="is it running, and with `metrics: true`?",
        )
    return window


def _scrape(url: str, headers: Mapping[str, str], http: Http, clock: Clock, begin: float) -> Scrape:
    at = clock.monotonic() - begin
    try:
        answer = http.get(f"{url}/metrics", headers=headers, timeout_s=5.0)
    except NoAnswer:
        return Scrape(at_s=at, metrics=None)
    if answer.status in {502, 503, 504}:
        return Scrape(at_s=at, metrics=None)
    if not answer.ok:
        fix = "llama-server needs `metrics: true`; an API key may be missing"
        raise OutsideError(f"HTTP {answer.status}", where=answer.url, fix=fix)
    return Scrape(at_s=at, metrics=parse_metrics(answer.text, started=_started(answer)))


def _started(answer: Answer) -> float | None:
    """Return llama-server's start from its header: microseconds of the machine's uptime."""
    said = answer.headers.get("process-start-time-unix", "")
    return int(said) / 1e6 if said.isdecimal() else None


def _as_json(scrape: Scrape) -> dict[str, Any]:
    found = scrape.metrics
    if found is None:
        return {"at_s": round(scrape.at_s, 3), "down": True}
    ours = ("vllm:", "llamacpp:")
    return {
        "at_s": round(scrape.at_s, 3),
        "engine": found.engine,
        "started": found.started,
        "values": {name: v for name, v in found.values.items() if name.startswith(ours)},
        "histograms": {
            name: {
                "buckets": [[str(bound), count] for bound, count in each.buckets],
                "sum": each.sum,
                "count": each.count,
            }
            for name, each in found.histograms.items()
            if name.startswith(ours)
        },
    }


def _from_json(line: Mapping[str, Any]) -> Scrape:
    if line.get("down"):
        return Scrape(at_s=line["at_s"], metrics=None)
    histograms = {
        name: Histogram(
            buckets=tuple((float(bound), count) for bound, count in each["buckets"]),
            sum=each["sum"],
            count=each["count"],
        )
        for name, each in line["histograms"].items()
    }
    metrics = Metrics(
        engine=line["engine"],
        values=line["values"],
        histograms=histograms,
        started=line["started"],
    )
    return Scrape(at_s=line["at_s"], metrics=metrics)
