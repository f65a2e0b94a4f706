"""How people type: greetings, capitals, letters left out or swapped, characters that sound alike."""

from __future__ import annotations

import random

BEFORE_ZH = (
    *("请问", "请问", "你好", "你好，", "您好，", "我想问下", "我想问一下，", "请问一下", "那个", "麻烦问下"),
    *("客服", "亲，", "在吗，", "急！", "想咨询一下", "帮我看看", "你们", "哈喽，", "老师好，"),
)
AFTER_ZH = (
    *("？", "？", "?", "？", "。", "啊", "呢", "吗", "！", "呀", "，谢谢", "，急", "怎么办", "？？", "..."),
    *("啊？", "了", "!", "吧"),
)
BEFORE_EN = ("hi, ", "hello ", "please ", "hey ", "hi ", "um ", "excuse me, ", "quick question: ", "so ", "ok ")
AFTER_EN = ("?", ".", "!", " please", " thanks", "?", "???", " thank you", "...", " asap")

ALIKE_ZH = (
    *(("账", "帐"), ("登录", "登陆"), ("贷", "代"), ("呗", "贝"), ("逾期", "预期"), ("额度", "额渡")),
    *(("可以", "可已"), ("花呗", "花贝"), ("退款", "退钱"), ("怎么", "怎莫"), ("为什么", "为甚么")),
    *(("的", "得"), ("在", "再"), ("哪", "那")),
)

BEFORE, AFTER = 0.3, 0.45
ALIKE, LOST, SWAPPED, UNQUOTED = 0.06, 0.04, 0.03, 0.1
"""Shares of texts."""


def typed(text: str, *, chinese: bool, chance: random.Random) -> str:
    """The text as somebody may have typed it."""
    before, after = (BEFORE_ZH, AFTER_ZH) if chinese else (BEFORE_EN, AFTER_EN)
    if chance.random() < BEFORE:
        text = chance.choice(before) + text
    if chance.random() < AFTER:
        text += chance.choice(after)
    text = _alike(text, chance) if chinese else _latin(text, chance)
    if len(text) > 5 and chance.random() < LOST:
        at = chance.randrange(1, len(text))
        text = text[:at] + text[at + 1 :]
    return text


def _alike(text: str, chance: random.Random) -> str:
    if chance.random() >= ALIKE:
        return text
    here = [pair for pair in ALIKE_ZH if pair[0] in text]
    return text.replace(*chance.choice(here)) if here else text


def _latin(text: str, chance: random.Random) -> str:
    if chance.random() < 0.5:
        text = text[:1].upper() + text[1:]
    if chance.random() < UNQUOTED:
        text = text.replace("'", "")
    if len(text) > 8 and chance.random() < SWAPPED:
        at = chance.randrange(1, len(text) - 2)
        text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text
