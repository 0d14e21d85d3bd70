"""Schemas: registered and read by the real client, and by GET_SCHEMA and GET_OR_CREATE_SCHEMA on the wire."""

import json
from typing import Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.admin import Admin
from tests.support.clients.wire import WireClient

pytestmark = pytest.mark.pulsar


class Order(Record):  # type: ignore[misc]
    name = String()
    amount = Integer()


def json_schema(*names: str) -> pb.Schema:
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in names]
    definition = {"type": "record", "name": "Row", "fields": fields}
    return pb.Schema(name="row", type=pb.Schema.Json, schema_data=json.dumps(definition).encode())


def test_get_schema_returns_what_the_client_registered(client: pulsar.Client, wire: WireClient, topic: str) -> None:
    client.create_producer(topic, schema=JsonSchema(Order))
    response = wire.get_schema(topic)
    assert not response.HasField("error_code")
    assert response.schema.type == pb.Schema.Json
    assert json.loads(response.schema.schema_data)["name"] == "Order"
    assert wire.get_schema(topic, response.schema_version).schema == response.schema


def test_get_or_create_schema_gives_an_equal_schema_the_same_version(
    admin: Admin, wire: WireClient, topic: str
) -> None:
    admin.create_topic(topic)
    first, again = (wire.get_or_create_schema(topic, json_schema("a")) for _ in range(2))
    assert not first.HasField("error_code")
    assert first.schema_version == again.schema_version != b""
    assert wire.get_schema(topic).schema_version == first.schema_version


def test_get_or_create_schema_refuses_an_incompatible_one_with_a_code(
    admin: Admin, wire: WireClient, topic: str
) -> None:
    admin.create_topic(topic)
    wire.get_or_create_schema(topic, json_schema("a"))
    refused = wire.get_or_create_schema(topic, json_schema("b"))
    assert refused.error_code == ServerError.IncompatibleSchema
    assert refused.error_message
