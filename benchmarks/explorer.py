"""How quick is the explorer? 50 clients on the predict route, first paints, large spectra and studies; libraries drawn.

    python benchmarks/explorer.py [--seconds 30] [--clients 50] [--libraries FOLDER]

Everything stays on the loopback. Writes ``benchmarks/results/explorer.json`` beside the environment it ran in. The
folder of libraries holds the minified scripts of Plotly, ECharts and uPlot as npm has them, to time a first drawing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from harness import environment, write

for folder in ("tests", "explorer/tests"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
SCREENS = ("predict", "maps", "training", "compare", "studies", "papers", "function", "jobs")
_DRAW = {
    "plotly-basic.min.js": "Plotly.newPlot(place, [{x, y, mode: 'lines'}], {yaxis: {type: 'log'}})",
    "plotly-cartesian.min.js": "Plotly.newPlot(place, [{x, y, mode: 'lines'}], {yaxis: {type: 'log'}})",
    "echarts.min.js": "echarts.init(place).setOption({animation: false, xAxis: {}, yAxis: {type: 'log'}, "
    "series: [{type: 'line', showSymbol: false, data: x.map((one, i) => [one, y[i]])}]})",
    "uPlot.iife.min.js": "new uPlot({width: 800, height: 400, series: [{}, {stroke: 'black'}], "
    "scales: {x: {time: false}, y: {distr: 3}}}, [x, y], place)",
}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The link of an explorer with two maps and two tracks of the tests, and one map of 100,000 eigenvalues."""
    from explorers import RESULTS, filled_store

    store = filled_store(folder / "store.sqlite")
    add_large_map(store, 100_000)
    words = ["-m", "hessmap", "serve", "--port", "0", "--store", str(store), "--results", str(RESULTS)]
    with subprocess.Popen([sys.executable, *words], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        try:
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)


def add_large_map(path: Path, size: int) -> None:
    from dataclasses import replace

    from hessmap.records import Spectrum, Store, add_map
    from views.synthetic_map import curvature_map

    made = curvature_map(with_counterpart=False)
    values = np.concatenate([np.logspace(0, -9, size // 2), np.logspace(-15, -19, size - size // 2)])
    spectrum = Spectrum(values, "dense", True, np.array([]), 1.0)
    parts = tuple(replace(part, spectrum=spectrum) for part in made.network.parts)
    network = replace(made.network, parts=parts, num_parameters=size)
    with Store(path) as store:
        add_map(store, "large", replace(made, network=network))


async def client(host: str, port: int, headers: str, until: float, number: int) -> list[float]:
    """One client that asks again as soon as it is answered, every time for another network."""
    reader, writer = await asyncio.open_connection(host, port)
    times: list[float] = []
    while time.perf_counter() < until:
        width = 5 + (number * 7919 + len(times)) % 90
        query = f"widths=64-{width}-{20 + len(times) % 30}-10&input_rank={40 + number % 20}"
        started = time.perf_counter()
        writer.write(f"GET /api/predict?{query} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        await reader.readexactly(int(length[1]))
        times.append(time.perf_counter() - started)
    writer.close()
    return times


def load(link: str, clients: int, seconds: float) -> dict[str, Any]:
    found = re.match(r"http://([\d.]+):(\d+)/\?token=(.+)", link)
    assert found
    host, port, token = found[1], int(found[2]), found[3]
    headers = f"Host: {host}:{port}\r\nCookie: hessmap-{port}={token}"

    async def all_clients() -> list[list[float]]:
        until = time.perf_counter() + seconds
        return await asyncio.gather(*(client(host, port, headers, until, number) for number in range(clients)))

    times = np.sort(np.concatenate([np.array(one) for one in asyncio.run(all_clients())])) * 1e3
    shares = {f"p{share}_ms": round(float(np.percentile(times, share)), 2) for share in (50, 95, 99)}
    return {"question": "predict", "clients": clients, "seconds": seconds, "requests": len(times), **shares}


def pages(link: str) -> Iterator[dict[str, Any]]:
    """First paints, the time until a large spectrum is drawn, and answers under a moving threshold."""
    from playwright.sync_api import sync_playwright

    base = link.partition("/?")[0]
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(link)
        for screen in SCREENS:
            paints = []
            for _ in range(3):
                page.goto(f"{base}/{screen}")
                page.wait_for_selector("main h1")
                paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            yield {"question": "first paint", "screen": screen, "ms": round(float(np.median(paints)), 1)}
        begun = time.perf_counter()
        page.goto(f"{base}/maps/large")
        page.wait_for_selector("section[data-network='0'] figure[data-drawn]", timeout=60_000)
        yield {"question": "spectrum of 100,000 values", "ms": round(1e3 * (time.perf_counter() - begun), 1)}
        spectrum = page.evaluate(_ZOOM, 40_000)
        yield {"question": "zoom into that spectrum", "ms": round(spectrum, 1)}
        moved = page.evaluate(
            """async () => { const times = []; for (let step = 0; step < 60; step += 1) {
            const start = performance.now();
            await fetch(`/api/maps/large/rank?tolerance=${10 ** (-3 - step / 10)}`).then(answer => answer.json());
            times.push(performance.now() - start); } return times; }"""
        )
        yield {"question": "rank under a moved threshold", "p95_ms": round(float(np.percentile(moved[5:], 95)), 1)}
        yield from study_of_many_cases(page, 10_000)
        browser.close()


_ZOOM = """async end => { const place = document.querySelector(".plot"), start = performance.now();
    await Plotly.relayout(place, {"xaxis.range": [0, end]}); await new Promise(requestAnimationFrame);
    return performance.now() - start; }"""
_DRAW_FIGURE = """async figure => { const { draw } = await import("/static/figure.js");
    const place = document.createElement("div"); place.className = "plot"; place.style.height = "400px";
    document.querySelector("main").prepend(place); const start = performance.now();
    await draw(place, figure); await new Promise(requestAnimationFrame); return performance.now() - start; }"""


def study_of_many_cases(page: Any, cases: int) -> Iterator[dict[str, Any]]:
    """Rows to the figure of a browser, thinned at the server; then drawn, and zoomed into."""
    from hessmap_explorer.figures.studies import panel_data
    from hessmap_research.runner.row import Row
    from hessmap_research.runner.view import Cloud
    from hessmap_research.views.panels import Panel

    rows = tuple(Row({"width": place, "seed": 0}, {"rank": place**0.5, "kind": place % 3}) for place in range(cases))
    started = time.perf_counter()
    figure = panel_data(Panel(Cloud(title="many", x="width", y="rank", colour="kind"), rows))
    seconds = time.perf_counter() - started
    shown = sum(len(trace.x) for trace in figure.traces)
    named = {"cases": cases, "points": shown}
    yield {"question": "study of many cases, at the server", **named, "ms": round(1e3 * seconds, 1)}
    drawn = page.evaluate(_DRAW_FIGURE, figure.to_dict())
    yield {"question": "study of many cases, drawn", **named, "ms": round(drawn, 1)}
    yield {"question": "study of many cases, zoomed", **named, "ms": round(page.evaluate(_ZOOM, cases / 3), 1)}


def libraries(folder: Path) -> Iterator[dict[str, Any]]:
    """The first drawing of a curve of 2,000 points, from the start of the script: load, parse, draw."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, code in _DRAW.items():
            times = []
            for _ in range(3):
                page = browser.new_page()
                page.set_content("<div id='place' style='width:800px;height:400px'></div>")
                page.evaluate("window.start = performance.now()")
                page.add_script_tag(path=str(folder / name))
                drawing = "const place = document.getElementById('place'); const x = [...Array(2000).keys()];"
                drawing += " const y = x.map(one => 10 ** (-one / 200));"
                script = f"async () => {{ {drawing} await ({code}); await new Promise(requestAnimationFrame); }}"
                page.evaluate(script)
                times.append(page.evaluate("performance.now() - window.start"))
                page.close()
            size = (folder / name).stat().st_size
            yield {"question": "first drawing", "library": name, "bytes": size, "ms": round(float(np.median(times)), 1)}
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--libraries", type=Path)
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    where, cases = environment(), []
    for case in measured(chosen.clients, chosen.seconds, chosen.libraries):
        print(case, flush=True)
        cases.append(case)
    write("explorer", where, cases)


def measured(clients: int, seconds: float, scripts: Path | None) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as link:
        yield load(link, clients, seconds)
        yield from pages(link)
    if scripts:
        yield from libraries(scripts)


if __name__ == "__main__":
    main()
