"""Owns the few calls of Pulsar's admin HTTP interface that the tests need.

Goes to the broker itself, never through the proxy: it is the yardstick for what the proxy answers.
"""

import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from tests.support.patience import patient

_TIMEOUT_SECONDS = 60.0


class AdminError(Exception):
    """Report an answer other than success, with Pulsar's own reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status


class Admin:
    """Call the admin interface at `url`, such as http://127.0.0.1:8080, with a bearer token if there is one."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded answer, None if it is empty; raises AdminError, or OSError if nobody answers."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=patient(_TIMEOUT_SECONDS)) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AdminError(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def is_serving(self, namespace: str) -> bool:
        """Tell whether `namespace` exists and a topic in it can be looked up."""
        tenant = namespace.split("/")[0]
        try:
            namespaces = self.call("GET", f"/admin/v2/namespaces/{tenant}")
            self.call("GET", f"/lookup/v2/topic/persistent/{namespace}/ready")
        except (OSError, AdminError):
            return False
        return namespace in namespaces

    def create_namespace(self, namespace: str) -> None:
        """Create `namespace` under a tenant that exists."""
        self.call("PUT", f"/admin/v2/namespaces/{namespace}", {})

    def create_topic(self, topic: str, partitions: int = 0) -> None:
        """Create `topic` (domain://tenant/namespace/name); 0 partitions is a topic that has none."""
        path = "/admin/v2/" + _topic_path(topic)
        if partitions:
            self.call("PUT", f"{path}/partitions", partitions)
        else:
            self.call("PUT", path)

    def keep_messages(self, namespace: str) -> None:
        """Have all topics of a namespace keep their messages, and stay themselves, as docs/event-topic.md says."""
        forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        self.call("POST", f"/admin/v2/namespaces/{namespace}/retention", forever)
        inactive = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "deleteWhileInactive": False}
        self.call("POST", f"/admin/v2/namespaces/{namespace}/inactiveTopicPolicies", inactive)

    def delete_topic(self, topic: str) -> None:
        """Delete `topic`, which has no partitions, whoever uses it."""
        self.call("DELETE", f"/admin/v2/{_topic_path(topic)}?force=true")

    def topics(self, namespace: str, mode: str = "PERSISTENT") -> list[str]:
        """List what a client may see of `namespace`: no system topics, partitions one by one."""
        names = self.call("GET", f"/admin/v2/namespaces/{namespace}/topics?mode={mode}&includeSystemTopic=false")
        return sorted(names)


def _topic_path(topic: str) -> str:
    domain, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return f"{domain}/{tenant}/{namespace}/{quote(name, safe='')}"
