"""Write the tables of docs/scaling.md and draw its pictures: the simulation is played anew, the real run is read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.ladder.results import load
from benchmarks.scaling import costs, tables
from benchmarks.scaling.draw import PALETTES, Run, drawing
from benchmarks.scaling.model import Fleet, Outcome
from scripts.generated import ROOT, placed

PAGE: Final = ROOT / "docs/scaling.md"
DRAWN_FLEETS: Final = (5, 20, 80)


def files() -> Mapping[Path, str]:
    parts = {
        "costs": tables.paid(),
        "compared": tables.compared(),
        "advice": tables.advice(),
        "real": real(),
        "logs": logs(),
    }
    marked = {marks(name): f"\n\n{chr(10).join(lines)}\n\n" for name, lines in parts.items()}
    return {PAGE: placed(PAGE, marked), **pictures()}


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by scripts/generate_scaling.py, do not edit -->", f"<!-- {name}: end -->"


def pictures() -> Mapping[Path, str]:
    storm, paid = tables.COMPARED_STORM, costs.sheet().costs
    runs = []
    for proxies in DRAWN_FLEETS:
        outcome = tables.play(storm, Fleet(proxies), paid)
        runs.append(Run(f"{proxies} proxies", outcome.step, outcome.served, outcome.asked))
    title = f"{storm.clients:,} clients ask for one list of 1 MB within a second"
    return {
        ROOT / f"docs/images/scaling-{palette.name}.svg": drawing(title, storm.clients, runs, palette)
        for palette in PALETTES
    }


def real() -> Iterator[str]:
    """Yield the real runs beside their simulation: medians of the rounds, and how far the simulated figure is off."""
    yield "| lists | clients | proxies | questions | real | proxies' processors | real | off | served | real | off |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    (found,) = load(["scaling-real"])
    for (name, proxies), runs in by_storm(found).items():
        simulated = [tables.real_storm(run, found, found["machine"]["cores"]) for run in runs]
        processor = _pair(simulated, runs, "proxy_seconds", "proxy_seconds")
        served = _pair(simulated, runs, "served_seconds", "seconds_to_end")
        asked = [median(each.questions for each in simulated), median(run["questions"] for run in runs)]
        yield (
            f"| {name} | {runs[0]['clients']:,} | {proxies} | {asked[0]:,.0f} | {asked[1]:,.0f} "
            f"| {processor[0]:.2f} s | {processor[1]:.2f} s | {processor[0] / processor[1] - 1:+.0%} "
            f"| {served[0]:.2f} s | {served[1]:.2f} s | {served[0] / served[1] - 1:+.0%} |"
        )


def by_storm(found: Mapping[str, Any]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the runs of each storm and fleet."""
    grouped: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for run in found["runs"]:
        grouped.setdefault((run["name"], run["proxies"]), []).append(run)
    return grouped


def _pair(simulated: list[Outcome], runs: list[dict[str, Any]], ours: str, theirs: str) -> tuple[float, float]:
    return median(getattr(each, ours) for each in simulated), median(run[theirs] for run in runs)


def logs() -> Iterator[str]:
    """Yield what the pipeline found in the event logs of three proxies, beside what clients and broker saw."""
    yield "| lists | storms | requests, by logs | clients | questions, by logs | broker | served, by logs | clients |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    (found,) = load(["scaling-real"])
    # One storm of the pipeline for each run, in their order.
    pairs = list(zip(found["runs"], found["logs"], strict=True))
    for name in dict.fromkeys(run["name"] for run in found["runs"]):
        of = [(run, log) for run, log in pairs if run["name"] == name and run["proxies"] > 1]
        yield (
            f"| {name} | {len(of)} | {sum(log['answered'] for _, log in of):,} "
            f"| {sum(run['answered'] for run, _ in of):,} "
            f"| {sum(log['questions'] for _, log in of):,} | {sum(run['questions'] for run, _ in of):,} "
            f"| {median(log['served_seconds'] for _, log in of):.2f} s "
            f"| {median(run['seconds_to_end'] for run, _ in of):.2f} s |"
        )
