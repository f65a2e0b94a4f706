"""The whole page: one document with its own style and script, which its content security policy names by digest.

Without the script the page is a table of the moment it was asked for. The script only puts parts made here in the
place of older ones; the policy lets no other script run, whatever a name holds.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256

from extproc.page.html import link

STYLE = """
:root { color-scheme: light dark; --good: #17652f; --warning: #7a4b00; --bad: #a4161a; --line: #d4d4d8;
  --soft: #f4f4f5; --link: #0b4f9e; --paper: #fff; --ink: #18181b; }
@media (prefers-color-scheme: dark) { :root { --good: #7fd99a; --warning: #f2c46d; --bad: #ff9b96; --line: #3f3f46;
  --soft: #27272a; --link: #8ec5ff; --paper: #18181b; --ink: #f4f4f5; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 76rem;
  background: var(--paper); color: var(--ink); }
header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: baseline; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1rem; margin: 1.5rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .3rem 0; } a { color: var(--link); }
button { font: inherit; padding: .1rem .8rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .6rem 1rem; margin: 0; }
dt { font-size: .85rem; } dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; vertical-align: top; max-width: 24rem;
  overflow-wrap: break-word; }
td { min-width: 3rem; } tbody tr { border-top: 1px solid var(--line); } tbody th { font-weight: 500; }
meter { width: 5rem; }
.good { color: var(--good); } .warning { color: var(--warning); } .bad { color: var(--bad); }
.good, .warning, .bad, .plain { font-weight: 600; background: var(--soft); border-radius: .3rem; padding: 0 .4rem; }
"""

SCRIPT = """
"use strict";
(() => {
  const told = document.getElementById("live"), button = document.getElementById("pause");
  let source = null;
  const say = (word) => { if (told.textContent !== word) told.textContent = word; };
  const place = (event) => {
    for (const [id, part] of Object.entries(JSON.parse(event.data))) {
      const section = document.getElementById(id);
      if (section) section.innerHTML = part;
    }
    say("live");
  };
  const stop = () => { if (source) source.close(); source = null; };
  const start = () => {
    stop();
    source = new EventSource("/live");
    source.onmessage = place;
    source.onerror = () => {
      say("not connected, as of a moment ago");
      if (source && source.readyState === EventSource.CLOSED) { source = null; setTimeout(start, 3000); }
    };
  };
  button.hidden = false;
  button.onclick = () => {
    const paused = button.textContent === "Pause";
    button.textContent = paused ? "Go on" : "Pause";
    if (paused) { stop(); say("paused"); } else start();
  };
  start();
})();
"""


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_digest(SCRIPT)}; style-src {_digest(STYLE)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page."""


def document(sections: Mapping[str, str], links: Iterable[str]) -> str:
    """The page around its parts; `links` are paths of other pages."""
    parts = "".join(f'<section id="{name}">{part}</section>' for name, part in sections.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>extproc</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        '<body><header><h1>extproc</h1><p id="live" role="status">as of the last load</p>'
        '<button id="pause" type="button" hidden>Pause</button></header>'
        f'<main>{parts}</main><footer><h2>Pages</h2><nav aria-label="Pages">{" · ".join(map(link, links))}</nav>'
        f"</footer><script>{SCRIPT}</script></body></html>\n"
    )
