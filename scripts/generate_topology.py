"""Draw what the two charts install, docs/images/topology-light.svg and topology-dark.svg: one drawing, two themes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from scripts.generate_overview import FONT, THEMES, Theme, arrow, box, named_box, text
from scripts.generated import ROOT
from scripts.helm.render import GATEWAY, LIBRARY

WIDTH, HEIGHT = 1000, 540
TITLE: Final = (
    "Above, the gateway chart: a Service and pods in front of the brokers. Below, a sidecar in an application's pod"
)
# Beside the pods: what the gateway chart makes of its values, and which value says so.
OBJECTS: Final = (
    ("ConfigMap", "configData"),
    ("PodDisruptionBudget", "pdb"),
    ("HorizontalPodAutoscaler", "autoscaling"),
    ("NetworkPolicy", "networkPolicy"),
    ("PodMonitor, rules, dashboard", "podMonitor, prometheusRule, dashboards"),
    ("Certificate", "certificate"),
)


def gateway(theme: Theme) -> Iterator[str]:
    """Yield the release of the gateway chart: Service, pods, and the objects around them."""
    yield box(226, 16, 548, 316, theme.surface, theme)
    yield text(246, 44, f"Chart {GATEWAY.name}", theme.text, size=16, bold=True)
    yield from named_box(246, 92, 132, ("Service", "80, 6650"), theme)
    for at, y in enumerate((64, 104, 144)):
        yield box(448, y, 306, 32, theme.lane, theme)
        yield text(464, y + 21, f"pod {at + 1}", theme.text, bold=True)
        yield text(516, y + 21, "memory: what its keys add up to", theme.quiet, size=12)
        yield arrow(384, 123, 442, y + 16, theme)
    yield text(246, 210, "Also, by value:", theme.quiet, size=12)
    for at, (kind, value) in enumerate(OBJECTS):
        x, y = 246 + (at % 2) * 256, 222 + (at // 2) * 35
        yield box(x, y, 252, 29, theme.lane, theme)
        yield text(x + 12, y + 19, kind, theme.text, size=12, bold=True)
        if len(kind) + len(value) <= 32:
            yield text(x + 240 - 6 * len(value), y + 19, value, theme.quiet, size=11)


def sidecar(theme: Theme) -> Iterator[str]:
    """Yield an application's pod that includes the library chart."""
    yield box(226, 352, 548, 172, theme.surface, theme)
    yield text(246, 380, f"Your chart, with {LIBRARY.name}", theme.text, size=16, bold=True)
    yield box(246, 396, 508, 112, theme.lane, theme)
    yield text(262, 418, "pod of the application", theme.quiet, size=12)
    yield from named_box(262, 430, 150, ("application", "your container"), theme)
    yield text(504, 452, "127.0.0.1:6650", theme.quiet, size=12, middle=True)
    yield arrow(418, 461, 584, 461, theme)
    yield from named_box(590, 430, 150, ("pulsar-proxy", "first up, last down"), theme)


def drawing(theme: Theme) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f'     font-family="{escape(FONT)}">',
        f"<title>{escape(TITLE)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{theme.line}"/></marker></defs>',
        *named_box(16, 56, 160, ("Clients", "pulsar://pulsar-proxy"), theme),
        *named_box(16, 136, 160, ("Admin tools", "http://pulsar-proxy"), theme),
        *gateway(theme),
        # Over the chart's box, as they end inside.
        arrow(182, 87, 240, 116, theme),
        arrow(182, 167, 240, 132, theme),
        *sidecar(theme),
        box(832, 16, 152, 508, theme.surface, theme),
        text(908, 44, "Pulsar", theme.text, size=18, bold=True, middle=True),
        *(
            part
            for y, name in ((72, "broker 1"), (230, "broker 2"), (430, "broker n"))
            for part in _broker(y, name, theme)
        ),
        arrow(760, 104, 842, 104, theme, both=True),
        arrow(760, 124, 842, 250, theme, both=True),
        arrow(746, 461, 842, 461, theme, both=True),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _broker(y: int, name: str, theme: Theme) -> Iterator[str]:
    yield box(848, y, 120, 62, theme.lane, theme)
    yield text(908, y + 36, name, theme.text, bold=True, middle=True)


def files() -> Mapping[Path, str]:
    return {ROOT / f"docs/images/topology-{theme.name}.svg": drawing(theme) for theme in THEMES}
