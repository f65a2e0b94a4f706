"""Triton's infer: every input comes back as `echo_<name>`, beside `text_output` and `received`.

Unlike the other APIs it refuses what does not add up, as Triton does: whether a changed body still has its
binary tail in the right place is what it is asked about.
"""

from __future__ import annotations

from typing import Any

import msgspec

from extproc.errors import ClientFault
from extproc.standin.echo import compose
from extproc.standin.receipt import INFER_HEADER_LENGTH, Received, header_length
from extproc.standin.replies import Binary, Document, Plain, Reply, encode
from extproc.standin.tensors import Tensor, pack, read_all, scalars, unpack
from extproc.standin.triton_api import model_and_version


def infer(received: Received) -> Reply:
    """POST /v2/models/{m}/infer, JSON and binary both ways."""
    try:
        return _infer(received)
    except ClientFault as fault:
        return Plain({"error": fault.message}, fault.status)


def _infer(received: Received) -> Reply:
    tail = split_tail(received)
    if not received.document:
        raise ClientFault(400, "bad_json", "failed to parse the request JSON buffer")
    inputs = read_all(received.document.get("inputs"), tail)
    received.params["inputs"] = scalars(inputs)
    outputs = {tensor.name: tensor for tensor in _outputs(received, inputs)}
    described, binary = [], []
    for name, as_binary in _requested(received.document, list(outputs)):
        if name not in outputs:
            model = model_and_version(received)[0]
            raise ClientFault(400, "bad_output", f"unexpected inference output '{name}' for model '{model}'")
        described.append(_describe(outputs[name], as_binary))
        if as_binary:
            binary.append(outputs[name].data)
    return _reply(received, described, binary)


def split_tail(received: Received) -> bytes:
    """The bytes behind the JSON, as `Inference-Header-Content-Length` says; none without it."""
    said = received.header(INFER_HEADER_LENGTH)
    if not said:
        return b""
    length = header_length(received.headers)
    size = len(received.content)
    if length is None or length > size:
        message = f"invalid Inference-Header-Content-Length '{said}' for {size} bytes of body"
        raise ClientFault(400, "bad_header_length", message)
    return received.content[length:]


def _outputs(received: Received, inputs: list[Tensor]) -> list[Tensor]:
    echoed = [Tensor(f"echo_{t.name}", t.datatype, t.shape, t.data) for t in inputs]
    line = Tensor("text_output", "BYTES", [1], pack("BYTES", [compose(received).line]))
    report = Tensor("received", "BYTES", [1], pack("BYTES", [bytes(received.report())]))
    return [*echoed, line, report]


def _requested(document: Document, available: list[str]) -> list[tuple[str, bool]]:
    """The outputs wanted and whether as binary: all of them unless some are named."""
    default = _parameters(document).get("binary_data_output") is True
    wanted = document.get("outputs")
    if not isinstance(wanted, list) or not wanted:
        return [(name, default) for name in available]
    named = [output for output in wanted if isinstance(output, dict)]
    return [(str(o.get("name")), _parameters(o).get("binary_data", default) is True) for o in named]


def _parameters(value: Document) -> dict[str, Any]:
    parameters = value.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _describe(tensor: Tensor, as_binary: bool) -> Document:
    head: Document = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    if as_binary:
        return head | {"parameters": {"binary_data_size": len(tensor.data)}}
    return head | {"data": unpack(tensor)}


def _reply(received: Received, described: list[Document], binary: list[bytes]) -> Reply:
    name, version = model_and_version(received)
    document: Document = {"model_name": name, "model_version": version, "outputs": described}
    if isinstance(received.document.get("id"), str):
        document["id"] = received.document["id"]
    if not binary:
        return Plain(document)
    head = encode(document, msgspec.Raw(received.encoded))
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return Binary(b"".join([head, *binary]), headers)
