"""The document and the policy it is sent with."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

from extproc.page.document import POLICY, document

PAGE = document({"now": "<h2>Now</h2>", "pools": "<p>none</p>"}, ("/metrics",))


def test_the_policy_names_the_script_and_the_style_and_nothing_else() -> None:
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in POLICY
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY and "http" not in POLICY


def test_parts_stand_under_their_ids() -> None:
    assert '<section id="now"><h2>Now</h2></section><section id="pools"><p>none</p></section>' in PAGE
    assert 'href="/metrics"' in PAGE


def test_it_loads_nothing_from_elsewhere() -> None:
    assert "http:" not in PAGE and "https:" not in PAGE and " src=" not in PAGE and "@import" not in PAGE
