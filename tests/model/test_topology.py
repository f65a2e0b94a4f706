from extproc.model.topology import Endpoint, Role


def test_an_endpoint_is_known_by_address_and_http_port() -> None:
    assert Endpoint("10.0.0.1", 8000, grpc_port=8001).key == "10.0.0.1:8000"


def test_roles_are_spelled_as_in_the_config() -> None:
    assert [role.value for role in Role] == ["stable", "long", "light", "shadow", "canary"]
