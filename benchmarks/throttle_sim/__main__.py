"""Play load shapes and print what came of them."""

import argparse

from benchmarks.throttle_sim.plant import Point, Run
from benchmarks.throttle_sim.shapes import MANY_SMALL, SHAPES


def summary(points: list[Point]) -> str:
    top = max(point.ratio for point in points)
    passed = sum(point.passed for point in points) / sum(point.offered for point in points)
    allowed = points[-1].allowed / 1e6
    return f"highest {top:.2f}, at the end {points[-1].ratio:.2f}, passed {passed:.0%}, allowed {allowed:.0f} MB/s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throttle_sim", description=__doc__)
    parser.add_argument("--shape", choices=[shape.name for shape in (*SHAPES, MANY_SMALL)], action="append")
    parser.add_argument("--proxies", type=int, action="append", help="default: 1, 3 and 10")
    parser.add_argument("--delay", type=float, default=1.0, help="age of the signal in seconds")
    options = parser.parse_args()
    for shape in (*SHAPES, MANY_SMALL):
        if options.shape and shape.name not in options.shape:
            continue
        print(f"{shape.name}: {shape.title}")
        print(f"  no throttle: {summary(Run(shape, throttled=False).play())}")
        for proxies in options.proxies or (1, 3, 10):
            print(f"  {proxies:2d} proxies:  {summary(Run(shape, proxies, options.delay).play())}")


if __name__ == "__main__":
    main()
