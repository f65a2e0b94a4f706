"""The world view: what the settings say, in the form requests are judged by."""

from __future__ import annotations

import ipaddress

import pytest

from extproc.model.names import RequestClass
from extproc.request.classify.label import Labels
from extproc.request.classify.rules import Rules
from extproc.settings import Secrets, load, snapshot
from extproc.trust import digest, tenant_name

OVER = """
parameter_set: shop
trust: {sources: [10.0.0.0/8, '::1/128'], identities: ['spiffe://a', 'spiffe://a']}
tenants: {key_header: x-api-key, classes: {shop: critical}}
inference_params: {lowest_latency: {paths: [/v1/completions]}}
limits: {max_body_bytes: 2048, max_keys: 20}
encoded_bodies: pass
"""
SECRETS = Secrets(tokens=[b"t1", b"t2"], tenant_keys=[b"k1", b"k2"])


def test_everything_arrives() -> None:
    loaded = load(OVER)
    built = snapshot(loaded, SECRETS, generation=7)
    assert built.generation == 7
    assert built.parameter_set == loaded.parameters().label() == f"shop@{loaded.parameters().version()}"
    assert built.trust.token_digests == (digest(b"t1"), digest(b"t2"))
    assert built.trust.sources == (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1/128"))
    assert built.trust.identities == {"spiffe://a"}
    assert built.tenants.key_header == "x-api-key"
    assert built.tenants.keys == {digest(b"k1"): tenant_name(b"k1"), digest(b"k2"): tenant_name(b"k2")}
    assert built.tenants.classes == {"shop": RequestClass.CRITICAL}
    assert (built.limits.max_body_bytes, built.limits.max_keys) == (2048, 20)
    assert built.lowest_latency_paths == ("/v1/completions",)
    assert built.encoded_bodies_pass is True


def test_the_label_is_asked_before_the_rules() -> None:
    built = snapshot(load(""), Secrets(tokens=[], tenant_keys=[]), generation=1)
    assert [type(classifier) for classifier in built.classifiers] == [Labels, Rules]
    assert built.encoded_bodies_pass is False
    assert built.trust.token_digests == ()


def test_secrets_are_in_it_only_as_digests() -> None:
    secrets = Secrets(tokens=[b"token-in-clear"], tenant_keys=[b"key-in-clear"])
    built = snapshot(load(""), secrets, generation=1)
    assert "in-clear" not in repr(built)


def test_it_cannot_be_changed() -> None:
    built = snapshot(load(""), SECRETS, generation=1)
    with pytest.raises(AttributeError):
        built.generation = 2  # type: ignore[misc]
