"""Web services below a path of a gateway (`brokerWebServiceURL=http://gateway:8080/base`): whoever asks, asks below it.

The Java proxy 4.0.8 writes its URL, without one final slash, before the path and the query of a request.
"""

import pytest
from aiohttp import web

from tests.support.web.fake_web_broker import echoed, fake_web_broker
from tests.support.web.web_stage import ADMIN, web_staged

LOOKUP = "/lookup/v2/topic/persistent/demo/ns/topic?authoritative=false"
LIST = "/admin/v2/namespaces/demo/ns/topics?mode=ALL"
WEBSOCKET = "/ws/v2/producer/persistent/t/n/topic?token=t"
FUNCTIONS = "/admin/v3/functions/t/n"
OWN = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "token:own"}
WATCHED = {"overloadThrottleEnabled": "true", "overloadSignals": "brokers"}


@pytest.mark.parametrize(
    ("base", "below"), [("", ""), ("/", ""), ("/base", "/base"), ("/base/", "/base"), ("/a/b//", "/a/b")]
)
async def test_what_clients_and_the_proxy_ask_is_asked_below_the_path(base: str, below: str) -> None:
    async with fake_web_broker() as workers:
        keys = {**OWN, **WATCHED, "functionWorkerWebServiceURL": f"{workers.url}{base},{workers.url}{base}"}
        async with web_staged(base=base, **keys) as at:
            broker = at.stage.broker.service_url

            async def answer(request: web.BaseRequest) -> web.StreamResponse:
                if "/ws/" in request.path:
                    return await echoed(request)
                return web.json_response({"brokerUrl": broker, "httpUrl": at.broker.url})

            at.broker.answer = answer
            for path in (ADMIN, LIST, FUNCTIONS, FUNCTIONS):
                assert (await at.ask(path)).status == 200
            found = (await at.ask(LOOKUP)).json
            # The answer has this proxy's addresses.
            assert found["httpUrl"] == at.url
            assert found["brokerUrl"] != broker
            if below:
                # It is no path of this proxy's.
                assert (await at.ask(below + ADMIN)).status == 404
            async with at.client.ws_connect(at.url + WEBSOCKET):
                pass
            # A list is one of its namespace, wherever the web service is.
            assert [usage.name for usage in at.stage.proxy.reports.usage.top(5).namespaces] == ["demo/ns"]
            await at.stage.until(lambda: at.broker.list_questions, "the question for the brokers' list")
            metrics = f"{below}/admin/v2/broker-stats/metrics"
            await at.stage.until(lambda: any(asked.path == metrics for asked in at.broker.asked), "statistics")
            asked = [each.path for each in at.broker.asked if "broker-stats" not in each.path]
            assert asked == [below + path for path in (ADMIN, LIST, LOOKUP, WEBSOCKET)]
            assert {each.path for each in at.broker.list_questions} == {f"{below}/admin/v2/brokers"}
        assert [each.path for each in workers.asked] == [below + FUNCTIONS] * 2
