"""Text as a handful of numbers: which rows of a table its character n-grams point at.

Letters fold to small ones, digits to one 0, everything that is neither to a blank; then every window of k
characters is hashed to a row. Nothing is split into words, so Chinese needs no tokenizer, and a typo costs a few
windows only. All orders are hashed by one product of the windows with random odd numbers modulo 2^64, of which the
upper bits count (Dietzfelbinger's multiply-shift). The rejected alternatives: n-grams in Python cost a millisecond,
a rolling hash per order five times as many calls of numpy, each a microsecond.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np
from msgspec import Struct

MOST_CHARS = 800
"""Longer texts are told by their two ends, half of this each: what a request is about stands first or last."""

HAN = 0x2E80
"""From here on a character is a word, or half of one."""

TOP = 0x10000
"""Characters above the basic plane, emoji above all, are blanks."""

BLANK, DIGIT, MONEY = " ", "0", "$"

_DIGITS = re.compile(r"\d+")
_ASCII_DIGITS = re.compile("[0-9]+")
"""A third of the time, where no others can be."""

_LETTER = re.compile("[a-zA-Z0-9]")

_SIMPLIFIED = str.maketrans(
    "單訂錢款貨運費帳賬戶號碼轉貸還銀餘額領繳嗎麼為這個們會給請問幫買賣價紙寫詩詞語標題點裡裏誰說話聽看電視機開關網絡線圖書學習會話國際時間現後對錯廣"
    "告軟體視頻遊戲導演風險藥醫療飯館廳館場車票經濟區別稅證件護險執據簽約權訴訟賠償責應該從無與實際確認發現變換購物專業級歡樂團隊創業設計產品質壞壓損",
    "单订钱款货运费帐账户号码转贷还银余额领缴吗么为这个们会给请问帮买卖价纸写诗词语标题点里里谁说话听看电视机开关网络线图书学习会话国际时间现后对错广"
    "告软体视频游戏导演风险药医疗饭馆厅馆场车票经济区别税证件护险执据签约权诉讼赔偿责应该从无与实际确认发现变换购物专业级欢乐团队创业设计产品质坏压损",
)


class Hashing(Struct, frozen=True):
    """How text becomes rows. `fold` (65536,) uint64: what a character counts as.

    `latin` and `han` (width, orders) uint64: multipliers of the n-grams that are read where a text has no Chinese
    character, and where it has; an n-gram of k characters has k of them, the rest of its column is 0.
    `bits`: rows are below 2^bits.
    """

    fold: Any
    latin: Any
    han: Any
    bits: int


def rows(text: str, how: Hashing) -> tuple[Any, bool]:
    """Rows (n,) intp of the n-grams of the text, as often as they stand there, and whether it is Chinese.

    Empty where there is neither letter nor digit. At most MOST_CHARS times the orders.
    """
    if len(text) > MOST_CHARS:
        text = f"{text[: MOST_CHARS // 2]}\n{text[-MOST_CHARS // 2 :]}"
    digits = _ASCII_DIGITS if text.isascii() else _DIGITS
    text = " ".join(digits.sub(DIGIT, text).split())
    width = how.latin.shape[0]
    padded = f" {text}{' ' * width}".encode("utf-32-le", "surrogatepass")
    folded = how.fold.take(np.frombuffer(padded, np.uint32), mode="clip")
    # Plain letters are told without looking at all of them.
    highest = ord("a") if text.isascii() and _LETTER.search(text) else int(folded.max())
    if highest == ord(BLANK):
        return np.zeros(0, np.intp), False
    windows = np.ndarray((len(text) + 1, width), np.uint64, folded, 0, (8, 8))
    chinese = highest >= HAN
    hashed = windows @ (how.han if chinese else how.latin)
    hashed >>= np.uint64(64 - how.bits)
    return hashed.ravel().view(np.intp), chinese


def fold_table() -> Any:
    """(65536,) uint64: every character as the one it counts as."""
    return np.array([_folded(code) for code in range(TOP)], np.uint64)


def _folded(code: int) -> int:
    if 0xD800 <= code < 0xE000:
        return ord(BLANK)
    plain = unicodedata.normalize("NFKC", chr(code)).lower().translate(_SIMPLIFIED)[:1] or BLANK
    kind = unicodedata.category(plain)
    if kind == "Sc":
        return ord(MONEY)
    if kind[0] == "N":
        return ord(DIGIT)
    return ord(plain) if kind[0] in "LM" and ord(plain) < TOP else ord(BLANK)


def hashing(*, latin: tuple[int, ...], han: tuple[int, ...], bits: int, seed: int) -> Hashing:
    """Of n-grams of these orders. An order that both have is hashed alike in both."""
    random = np.random.default_rng(seed)
    width = max(*latin, *han)
    columns = {order: _column(order, width, random) for order in sorted({*latin, *han})}
    stacked = [np.stack([columns[order] for order in orders], axis=1) for orders in (latin, han)]
    return Hashing(fold_table(), stacked[0], stacked[1], bits)


def _column(order: int, width: int, random: np.random.Generator) -> Any:
    drawn = random.integers(0, 1 << 63, order, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return np.concatenate([drawn, np.zeros(width - order, np.uint64)])
