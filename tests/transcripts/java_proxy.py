"""Own the Java proxy 4.0.8 as a child process, started as its own script does."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.ladder.servers import JAVA_OPTIONS
from tests.pulsar.distribution import DISTRIBUTION_VERSION, distribution_class_path
from tests.pulsar.process import ChildProcess
from tests.pulsar.proxy_process import answers
from tests.support.sockets.ports import free_ports

VERSIONS: Final = (DISTRIBUTION_VERSION,)
_STARTER: Final = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
_LOG4J: Final = Path(__file__).parent.parent / "pulsar" / "broker" / "log4j2.xml"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0


@contextmanager
def java_proxy(directory: Path, keys: Mapping[str, str]) -> Iterator[int]:
    """Run the proxy with these keys until the block ends, and give its port."""
    port, web_port = free_ports(2)
    settings = {
        "servicePort": str(port),
        "webServicePort": str(web_port),
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "clusterName": "transcripts",
        **keys,
    }
    config = directory / "java-proxy.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = ["java", *JAVA_OPTIONS, f"-Dlog4j2.configurationFile={_LOG4J}", "-cp", distribution_class_path()]
    process = ChildProcess("java proxy", [*command, _STARTER, "--config", str(config)], config.with_suffix(".log"))
    try:
        process.wait_ready(lambda: answers(f"pulsar://127.0.0.1:{port}"), _START_SECONDS)
        yield port
    finally:
        process.stop(_STOP_SECONDS)
