import pytest

from extproc.model.topology import Endpoint, Role, authority, is_ip


def test_an_endpoint_is_known_by_address_and_http_port() -> None:
    assert Endpoint("10.0.0.1", 8000, grpc_port=8001).key == "10.0.0.1:8000"


def test_roles_are_spelled_as_in_the_config() -> None:
    assert [role.value for role in Role] == ["stable", "long", "light", "shadow", "canary"]


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("10.0.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", False),
        ("node", False),
        ("10.0.0", False),
        ("10.0.0.1.nip.io", False),
        ("", False),
    ],
)
def test_what_an_address_is(host: str, found: bool) -> None:
    assert is_ip(host) is found


@pytest.mark.parametrize(
    ("host", "port", "spelled"),
    [("10.0.0.1", 80, "10.0.0.1:80"), ("node", None, "node"), ("::1", 80, "[::1]:80"), ("::1", None, "[::1]")],
)
def test_how_an_address_is_spelled(host: str, port: int | None, spelled: str) -> None:
    assert authority(host, port) == spelled
