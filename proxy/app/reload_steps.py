"""What a changed configuration does to each part of a running proxy; `proxy.app.reload` knows which key needs which."""

from proxy.app.list_memory import first_estimate
from proxy.app.proxy import Proxy
from proxy.clients.services import ClientLimits
from proxy.clients.sessions import SessionLimits
from proxy.config.config import Config
from proxy.net.write_watch import WriteLimits
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.web.forward.settings import WebLimits


def apply_limiter(proxy: Proxy, config: Config) -> None:
    """Change limits, queues and timeouts of both memories; what is held stays held."""
    proxy.memory.apply(config)
    _tell_recorder(proxy)


def apply_writes(proxy: Proxy, config: Config) -> None:
    """Change when clients that do not read are closed."""
    proxy.writes.limits = WriteLimits.of(config)


def apply_watches(proxy: Proxy, config: Config) -> None:
    """Change how watch frames on relayed connections are limited."""
    proxy.watch_limits.apply(config)


def apply_topic_lists(proxy: Proxy, config: Config) -> None:
    """Change times and sizes of topic lists."""
    proxy.memory.sizes.initial_bytes = first_estimate(config)
    proxy.services.requests.topic_lists.apply(TopicListLimits.of(config))
    _tell_recorder(proxy)


def apply_requests(proxy: Proxy, config: Config) -> None:
    """Change times and number of all other requests."""
    seconds = config.seconds(Config.topic_list_request_timeout_millis)
    proxy.services.requests.lookups.apply(config.max_concurrent_lookup_requests, seconds)
    proxy.services.requests.schemas.apply(seconds)


def apply_clients(proxy: Proxy, config: Config) -> None:
    """Change what a client may do, how many there may be, and their clocks."""
    proxy.services.limits = ClientLimits.of(config)
    proxy.services.direct_mode.apply(config.seconds(Config.broker_proxy_read_timeout_ms))
    proxy.sessions.apply(SessionLimits.of(config))


def apply_broker_pool(proxy: Proxy, config: Config) -> None:
    """Change number and clocks of request connections, and the time of every new connection to a broker."""
    proxy.broker_side.apply_pool(config)


def apply_targets(proxy: Proxy, config: Config) -> None:
    """Change which addresses clients may reach from now on."""
    proxy.broker_side.apply_targets(config)


def apply_web(proxy: Proxy, config: Config) -> None:
    """Change times of what is passed on by the web ports."""
    if proxy.web is not None:
        proxy.web.apply(WebLimits.of(config))


def apply_budget(proxy: Proxy, config: Config) -> None:
    """Add the worst case up anew."""
    proxy.add_up(config)
    proxy.note_budget()


def apply_log_level(proxy: Proxy, config: Config) -> None:
    """Write lines of another level from now on, or when the level for a while is over."""
    proxy.log_level.configure(config.log_level)


def apply_relay_log(proxy: Proxy, config: Config) -> None:
    """Show more or less of relays that begin from now on."""
    proxy.relay_log.set_level(int(config.proxy_log_level))


def _tell_recorder(proxy: Proxy) -> None:
    if proxy.recorder is not None:
        proxy.recorder.limits_changed()
