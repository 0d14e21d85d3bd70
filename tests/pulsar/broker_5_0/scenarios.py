"""Own what the V5 client sees of each scenario (java/V5Client.java) when all is well."""

from typing import Any, Final

COUNT: Final = 20
WELL: Final[dict[str, dict[str, Any]]] = {
    "produce": {"sent": COUNT},
    "queue": {"received": COUNT},
    "stream": {"received": COUNT},
    "namespace": {"received": COUNT, "later": COUNT},
    "regular": {"sent": COUNT, "received": COUNT},
    "transaction": {"seen_before": False, "received": COUNT, "seen_after": False},
    "closed": {"error": None},
}
