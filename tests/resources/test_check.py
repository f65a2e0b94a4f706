"""What would not be published, one mistake at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from extproc.model.xds import Kind, Resources
from extproc.resources.check import check

Tree = dict[str, Any]


def lb_endpoint(port: Any = 8000, weight: Any = 1, address: Any = "10.0.0.1") -> Tree:
    place = {"socket_address": {"address": address, "port_value": port}}
    return {"endpoint": {"address": place}, "load_balancing_weight": weight}


def good() -> dict[Kind, Tree]:
    weighted = {"clusters": [{"name": "a", "weight": 95}, {"name": "b", "weight": 5}]}
    routes = [
        {"name": "split", "match": {"prefix": "/s"}, "route": {"weighted_clusters": weighted}},
        {"match": {"prefix": "/"}, "route": {"cluster": "a", "request_mirror_policies": [{"cluster": "b"}]}},
        {"match": {"prefix": "/h"}, "route": {"cluster_header": "x-llm-pool"}},
        {"match": {"prefix": "/d"}, "direct_response": {"status": 404}},
    ]
    a = {"cluster_name": "a", "endpoints": [{"lb_endpoints": [lb_endpoint(1, 900), lb_endpoint(65535, 100)]}]}
    pipe = {"endpoint": {"address": {"pipe": {"path": "/run/b"}}}, "health_status": "DRAINING"}
    return {
        Kind.CDS: {
            "a": {"name": "a", "type": "EDS"},
            "b": {"name": "b", "type": "EDS", "eds_cluster_config": {"service_name": "pool"}},
            "s": {"name": "s", "type": "STATIC"},
        },
        Kind.EDS: {"a": a, "pool": {"cluster_name": "pool", "endpoints": [{"lb_endpoints": [pipe]}]}},
        Kind.RDS: {"r": {"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": routes}]}},
        Kind.RTDS: {
            "l": {
                "name": "l",
                "layer": {"n": 0, "f": 0.5, "b": True, "t": "x", "p": {"numerator": 5, "denominator": "MILLION"}},
            }
        },
    }


def lb(tree: dict[Kind, Tree]) -> list[Tree]:
    return tree[Kind.EDS]["a"]["endpoints"][0]["lb_endpoints"]  # type: ignore[no-any-return]


def route(tree: dict[Kind, Tree], at: int) -> Tree:
    return tree[Kind.RDS]["r"]["virtual_hosts"][0]["routes"][at]["route"]  # type: ignore[no-any-return]


def problems(change: Callable[[dict[Kind, Tree]], object]) -> list[tuple[str, str]]:
    tree = copy.deepcopy(good())
    change(tree)
    return [(each.path, each.message) for each in check(Resources(1, tree))]


def test_good_resources_have_none() -> None:
    assert check(Resources(1, good())) == ()


def test_an_empty_assignment_is_allowed() -> None:
    assert problems(lambda t: t[Kind.EDS].update(a={"cluster_name": "a"})) == []


def test_the_same_address_may_stand_in_two_priorities_and_two_assignments() -> None:
    def change(tree: dict[Kind, Tree]) -> None:
        tree[Kind.EDS]["a"]["endpoints"].append({"priority": 1, "lb_endpoints": [lb_endpoint(1)]})
        tree[Kind.EDS]["pool"]["endpoints"][0]["lb_endpoints"].append(lb_endpoint(1))

    assert problems(change) == []


SOCKET = "endpoints/a.endpoints[0].lb_endpoints[1].endpoint.address.socket_address"
SPLIT = "routes/r.virtual_hosts[0].routes[split].route.weighted_clusters"


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        (lambda t: lb(t)[1].update(load_balancing_weight=0), "endpoints/a.endpoints[0].lb_endpoints[1].load_balancing_weight", "from 1"),
        (lambda t: lb(t)[1].update(load_balancing_weight=-5), "endpoints/a.endpoints[0].lb_endpoints[1].load_balancing_weight", "from 1"),
        (lambda t: lb(t)[1].update(load_balancing_weight=1.0), "endpoints/a.endpoints[0].lb_endpoints[1].load_balancing_weight", "integer"),
        (lambda t: lb(t)[1].update(load_balancing_weight=True), "endpoints/a.endpoints[0].lb_endpoints[1].load_balancing_weight", "integer"),
        (lambda t: lb(t)[1].update(load_balancing_weight=2**32 - 900), "endpoints/a.endpoints[0].lb_endpoints", "sum to 4294967296"),
        (lambda t: lb(t)[1].update(health_status="FINE"), "endpoints/a.endpoints[0].lb_endpoints[1].health_status", "DRAINING"),
        (lambda t: lb(t).append(lb_endpoint(1)), "endpoints/a.endpoints[0].lb_endpoints[2].endpoint.address", "already"),
        (lambda t: lb(t).__setitem__(1, lb_endpoint(0)), f"{SOCKET}.port_value", "1 to 65535"),
        (lambda t: lb(t).__setitem__(1, lb_endpoint(65536)), f"{SOCKET}.port_value", "1 to 65535"),
        (lambda t: lb(t).__setitem__(1, lb_endpoint("80")), f"{SOCKET}.port_value", "1 to 65535"),
        (lambda t: lb(t).__setitem__(1, lb_endpoint(True)), f"{SOCKET}.port_value", "1 to 65535"),
        (lambda t: lb(t).__setitem__(1, lb_endpoint(None)), f"{SOCKET}.port_value", "1 to 65535"),
        (lambda t: lb(t).__setitem__(1, lb_endpoint(80, address="")), f"{SOCKET}.address", "an IP address"),
        (lambda t: t[Kind.EDS]["a"].update(cluster_name="x"), "endpoints/a.cluster_name", "the name"),
        (lambda t: t[Kind.EDS].pop("a"), "endpoints/a", "missing"),
        (lambda t: t[Kind.EDS].pop("pool"), "endpoints/pool", "missing"),
        (lambda t: t[Kind.EDS].update(x={"cluster_name": "x"}), "endpoints/x", "a cluster of type EDS"),
        (lambda t: t[Kind.EDS].update(s={"cluster_name": "s"}), "endpoints/s", "a cluster of type EDS"),
        (lambda t: t[Kind.CDS]["s"].update(name="x"), "clusters/s.name", "the name"),
        (lambda t: route(t, 1).update(cluster="x"), "routes/r.virtual_hosts[0].routes[1].route.cluster", "called x; there are a, b, s"),
        (lambda t: route(t, 1)["request_mirror_policies"][0].update(cluster="x"), "routes/r.virtual_hosts[0].routes[1].route.request_mirror_policies[0].cluster", "called x"),
        (lambda t: route(t, 0)["weighted_clusters"]["clusters"][1].update(name="x"), f"{SPLIT}.clusters[1].name", "called x"),
        (lambda t: route(t, 0)["weighted_clusters"]["clusters"][1].update(weight=-1), f"{SPLIT}.clusters[1].weight", "from 0"),
        (lambda t: [each.update(weight=0) for each in route(t, 0)["weighted_clusters"]["clusters"]], SPLIT, "sum to 0"),
        (lambda t: route(t, 0)["weighted_clusters"].update(clusters=[]), SPLIT, "sum to 0"),
        (lambda t: t[Kind.RDS]["r"].update(name="x"), "routes/r.name", "the name"),
        (lambda t: t[Kind.RTDS]["l"].update(name="x"), "runtime/l.name", "the name"),
        (lambda t: t[Kind.RTDS]["l"].update(layer=[]), "runtime/l.layer", "an object"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n=-1), "runtime/l.layer.n", "a number"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n=None), "runtime/l.layer.n", "a number"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n=[1]), "runtime/l.layer.n", "a number"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n=float("nan")), "runtime/l.layer.n", "a number"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n=float("inf")), "runtime/l.layer.n", "a number"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n={"numerator": -1}), "runtime/l.layer.n", "a percentage"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n={"numerator": 1, "denominator": "TEN"}), "runtime/l.layer.n", "a percentage"),
        (lambda t: t[Kind.RTDS]["l"]["layer"].update(n={"default": 1}), "runtime/l.layer.n", "a percentage"),
    ],
)  # fmt: skip
def test_one_mistake_one_problem_with_its_place(change: Any, path: str, message: str) -> None:
    (found,) = problems(change)
    assert found[0] == path
    assert message in found[1]


def test_no_clusters_at_all() -> None:
    assert ("clusters", "expected at least one: Envoy would drop all it has") in problems(
        lambda t: t[Kind.CDS].clear()
    )


def test_a_share_may_be_zero_while_another_is_not() -> None:
    assert problems(lambda t: route(t, 0)["weighted_clusters"]["clusters"][1].update(weight=0)) == []


def test_clusters_of_the_bootstrap_may_be_named() -> None:
    tree = good()
    route(tree, 1)["cluster"] = "own"
    assert len(check(Resources(1, tree))) == 1
    assert check(Resources(1, tree), frozenset({"own"})) == ()


def test_all_mistakes_are_told_at_once() -> None:
    def change(tree: dict[Kind, Tree]) -> None:
        lb(tree)[0]["load_balancing_weight"] = 0
        lb(tree)[1]["load_balancing_weight"] = 0
        route(tree, 1)["cluster"] = "x"

    assert len(problems(change)) == 3
