"""The shipped rules: what they take, what they leave, and that no text makes them slow."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import extproc
from extproc.model.names import Dialect, Tier
from extproc.model.values import Caller, Classification, InferenceRequest
from extproc.parameters import Rule, Scenario
from extproc.request.classify import rules as rules_module
from extproc.request.classify.rules import Rules

PACKAGE = Path(extproc.__file__).parent
CALLER = Caller(
    trusted=False, trust_reason="none", tenant="anonymous", label=None, request_class=None, overrides={}
)
SCENARIOS = {
    "general": Scenario(tier=Tier.NORMAL),
    "order_query": Scenario(tier=Tier.STRICT),
    "returns": Scenario(tier=Tier.STRICT),
    "payment": Scenario(tier=Tier.STRICT),
    "legal": Scenario(tier=Tier.STRICT),
    "recommendation": Scenario(tier=Tier.CREATIVE),
    "copywriting": Scenario(tier=Tier.CREATIVE),
}


def request(text: str) -> InferenceRequest:
    return InferenceRequest(Dialect.OPENAI_CHAT, model="m", text=text, given={}, insertable=frozenset())


def named(verdict: Classification | None) -> str | None:
    return None if verdict is None else verdict.rule


def _classify_rules(tree: Any) -> list[dict[str, Any]]:
    """The first non-empty `rules` under a key `classify`, at any depth of a configuration."""
    if not isinstance(tree, dict):
        return []
    here = tree.get("classify")
    if isinstance(here, dict) and here.get("rules"):
        return list(here["rules"])
    return next((found for value in tree.values() if (found := _classify_rules(value))), [])


def load_shipped() -> list[Rule]:
    """The rules of the shipped configuration, or of the part that is to go into it."""
    shipped = PACKAGE / "extproc.yaml"
    raw = _classify_rules(yaml.safe_load(shipped.read_text("utf-8"))) if shipped.exists() else []
    if not raw:
        raw = yaml.safe_load((PACKAGE / "rules.part.yaml").read_text("utf-8"))["rules"]
    return [Rule.model_validate(item) for item in raw]


SHIPPED = load_shipped()
JUDGE = Rules(SHIPPED, SCENARIOS, default_scenario="general")


def test_names_are_unique() -> None:
    names = [shipped.name for shipped in SHIPPED]
    assert sorted(set(names)) == sorted(names)


def test_strict_rules_stand_before_the_others() -> None:
    strict = [shipped.tier is Tier.STRICT for shipped in SHIPPED]
    assert strict == sorted(strict, reverse=True)


def test_a_rules_tier_is_its_scenarios() -> None:
    for shipped in SHIPPED:
        if shipped.scenario is not None:
            assert shipped.tier is SCENARIOS[shipped.scenario].tier, shipped.name


def texts(table: str) -> list[str]:
    """One text per line; short ones share a line, with ` | ` between them."""
    return [text for line in table.strip().splitlines() for text in line.strip().split(" | ")]


def rows(*tables: tuple[str, str]) -> list[Any]:
    return [
        pytest.param(scenario, text, id=f"{scenario}: {text}")
        for scenario, table in tables
        for text in texts(table)
    ]


ORDERS = """
    Where is order #12345?
    order no. AB-1234567 has not come
    My order number is 98765
    Order ID: 5550001
    order: 7320019
    track purchase 370795561790 please
    tracking number 1Z999AA10123456784
    it is 1Z999AA10123456784
    order 00123842 is late
    Ｏrder aside, order １２３４５６ is late
    123-1234567-1234567 never came
    my parcel RR123456785CN
    where's my package
    what happened to my last order
    can you cancel my order
    I forgot my order number
    when will my parcel arrive
    订单号12345678什么时候到 | 订单编号：SF1234567890 | 我的订单号是多少 | 运单号 ７７３１２３４５６
    快递单号是YT1234567890123 | 我的快递到哪了 | 帮我查一下订单 | 单号 43214321 怎么不动了
    東西沒到，訂單編號 20240101 | 什么时候能发货
"""

AMOUNTS = """
    I was charged $1,234.56
    is $99.90 right
    that is $500.
    they took $5k from me
    refund the US$20
    it was HK$ 88
    you charged me $5
    a fee of 1.234,56 € appeared
    £20 left
    it says €12
    20€ fehlen
    500$ is missing here
    I paid 500$.
    USD 500 were sent
    CHF 12.50 for that
    they want 300 EUR
    send 20 rmb
    Rs. 500 deducted
    ₹1500 gone
    ₩30000
    500 dollars
    about 2 million euros
    20 bucks
    fifty dollars went missing
    two hundred euros
    a hundred dollars
    pay 500 pounds
    a fee of 20 pounds
    500 yuan
    ￥99.9 不对
    ¥99
    少了99元 | 一共１２９９元 | 99.5块 | 99块钱 | 花了50块 | 三百元 | 五千块钱 | 十块钱 | 3万元 | 3.5万块钱
    5万人民币 | 500美元 | 我想借5000 | 还款1000可以吗 | 转了2万没到
"""

CARDS_AND_ACCOUNTS = """
    4111 1111 1111 1111
    use 4111-1111-1111-1111 please
    ４１１１ １１１１ １１１１ １１１１
    amex 3782 822463 10005
    6222 0210 0100 1234 567
    my card 4111111111111111
    here: 4111111111111111.
    卡号6222021001001234567
    DE89 3704 0044 0532 0130 00
    GB29NWBK60161331926819
    NO93 8601 1117 947
    what is my IBAN
    the swift code of your bank
    routing number please
    sort code 12-34-56
    开户行是哪里
"""

BANKING = """
    my credit card was stolen
    I lost my debit card
    my card was declined
    I paid with my card
    open a bank account
    show the account balance
    what is my balance
    I need a bank statement
    am I in overdraft
    set up a direct debit
    do a wire transfer
    can I wire money abroad
    transfer funds to savings
    my transfer is pending
    a cash withdrawal I did not make
    I want a chargeback
    where is the CVV
    change my PIN
    why did the top-up fail
    topping up does not work
    payment failed
    I was charged twice
    how do I pay my electric bill
    put the refund back on my card
    mortgage payments
    can I get a loan
    raise my credit limit
    a fraudulent transaction
    银行卡丢了 | 信用卡怎么办理 | 转账没到 | 余额不足 | 我要贷款 | 花呗怎么开通 | 借呗还不上
    还款日是几号 | 逾期会怎样 | 提现失败
    支付失败了 | 重复扣款 | 被盗刷了 | 信用額度和餘額
"""

RETURNS = """
    I want a refund
    get my money back
    what is your return policy
    I want to return this item
    return an item
    how do I return the shoes
    exchange this jacket for a larger one
    can I return my order
    I want to return a product
    I want to return it
    我要退货 | 怎么退款 | 可以换货吗 | 支持7天无理由吗 | 我要退貨
"""

LEGAL = """
    can I sue my landlord
    file a lawsuit
    they sued us
    breach of contract
    a clause in my contract
    review my employment contract
    write a contract for the sale
    limitation of liability
    am I liable if it breaks
    product liability
    is this GDPR compliant
    I need a lawyer
    is it legally binding
    copyright infringement
    合同违约怎么办 | 我要找律师 | 准备起诉他 | 法律上怎么规定
"""

PEOPLE = """
    call +44 20 7946 0958
    +1 (415) 555-0123
    reach me at (415) 555-0123
    415-555-0123
    1-800-555-0199
    020 7946 0958
    my phone number is 5550123456
    13800138000
    电话138-0013-8000
    １３８００１３８０００
    010-12345678
    手机号：13800138000
    123-45-6789
    my SSN
    passport number X12345678
    driver's license D1234567
    AB 12 34 56 C
    11010519491231002X
    我的身份证号是110105194912310021 | 护照 E12345678
"""

RECOMMENDATIONS = """
    recommend me a book
    can you recommend a good restaurant
    suggest a movie for tonight
    any suggestions for dinner
    do you have recommendations for Rome
    gift ideas for my dad
    推荐几部电影 | 求推荐 | 给我推荐一家餐厅 | 什么牌子的耳机好 | 生日送什么礼物
    附近有什么好玩的景点 | 推荐人均50-100元的餐馆
    推荐个200元以上的酒店
"""

COPYWRITING = """
    write a slogan for a bakery
    Write me a short poem about autumn
    create a catchy headline
    come up with a funny story about a cat
    generate three taglines
    write a product description for a lamp
    compose a haiku
    draft a blog post about tea
    tell me a joke
    I need a slogan
    suggest a tagline
    写一首关于春天的诗 | 帮我写个文案 | 想一句广告语 | 编一个睡前故事 | 讲个笑话 | 给公司起个名字 | 作文《我的妈妈》
"""


@pytest.mark.parametrize(
    ("scenario", "text"),
    rows(
        ("order_query", ORDERS),
        ("payment", AMOUNTS),
        ("payment", CARDS_AND_ACCOUNTS),
        ("payment", BANKING),
        ("returns", RETURNS),
        ("legal", LEGAL),
        ("general", PEOPLE),
        ("recommendation", RECOMMENDATIONS),
        ("copywriting", COPYWRITING),
    ),
)
def test_taken(scenario: str, text: str) -> None:
    verdict = JUDGE(request(text), CALLER)
    assert verdict is not None
    assert verdict.scenario == scenario, verdict.rule
    assert verdict.tier is (Tier.STRICT if scenario == "general" else SCENARIOS[scenario].tier)


LEFT_ALONE = r"""
    hello, how are you
    In 2024 we met, and in 1999 too
    the years 2019 2020 2021 2022
    from 2019-2024
    2024-01-31T10:20:30+08:00
    Python 3.11.7 or 3.12
    version 10.0.19045.3803
    the meeting is at 10:30 on 12/05/2024
    x = 9007199254740993
    id = 4503599627370496
    timestamp 1700000000000
    size == 17179869184
    f(17179869184)
    0x10aec: 68,
    what is 12345 * 67890
    3 + 4 = 7
    5 +12 -3
    192.168.1.100 and 10.0.0.1:8080
    +1.79769313e+308
    solve $2x + 3 = 7$ and $12x$
    let $x = 10$ and $10 < y$
    echo $1 $2
    awk '{print $1, $10}'
    a cell like $A$1 or B$2
    the regex ^[a-z]+[0-9]$
    the bank of the river
    the left bank of the Seine
    order a pizza
    I want to order 2 pizzas
    in order to sort the list
    sort order by name
    check the order of those calls
    return the order of the elements
    an alphabetical order
    point of contact
    return the sum of the list
    the function returns a list
    return label
    return the product of two numbers
    remove and return the last item of the list
    a pull request returns 404
    transfer learning explained
    the transfer of heat
    lose 10 pounds
    a bag of 5 pounds of flour
    my two cents
    pay attention
    balance a binary tree
    work-life balance
    give my card to grandma
    a birthday card for mom
    my graphics card is slow
    pin the tab
    the top of the page is up
    smart contract in Solidity
    contract a disease
    Tell Sue a secret
    BE LIABLE FOR ANY CLAIM
    how do recommender systems learn
    PHP 8 and Java 17
    try 3 times
    AutoCAD 2024
    the recommended dose
    write a function that adds numbers
    tell me about the weather
    make your speech slower
    今天天气怎么样 | 解一元二次方程 | 3元一次方程组 | 元旦放假吗 | 公元2024年 | 二十元素周期表
    我们一块走吧 | 两块石头
    推荐信怎么写 | 推荐算法的原理 | 转180度 | 还有3天 | 第12345号 | 北京时间 10:30 | 三国演义的作者
"""


@pytest.mark.parametrize("text", texts(LEFT_ALONE))
def test_left_alone(text: str) -> None:
    assert named(JUDGE(request(text), CALLER)) is None


@pytest.mark.parametrize(
    ("text", "scenario"),
    [
        ("Recommend me a credit card", "payment"),
        ("write a poem about my order #12345", "order_query"),
        ("写一首关于合同的诗", "legal"),
        ("Return order #12345, I paid $50", "order_query"),
        ("a refund of $350", "payment"),
        ("call me at 415-555-0123 about the lawsuit", "legal"),
    ],
)
def test_the_stricter_meaning_wins(text: str, scenario: str) -> None:
    verdict = JUDGE(request(text), CALLER)
    assert verdict is not None
    assert (verdict.tier, verdict.scenario) == (Tier.STRICT, scenario)


def test_every_shipped_rule_decides_some_text_of_these_tables() -> None:
    tables = (
        ORDERS, AMOUNTS, CARDS_AND_ACCOUNTS, BANKING, RETURNS, LEGAL, PEOPLE, RECOMMENDATIONS, COPYWRITING
    )  # fmt: skip
    deciding = {named(JUDGE(request(text), CALLER)) for table in tables for text in texts(table)}
    assert {shipped.name for shipped in SHIPPED} <= deciding


@given(st.text())
def test_any_text_gets_an_answer_and_both_ways_agree(text: str) -> None:
    encoded = text.encode("utf-8", errors="replace")
    one_by_one = next(
        (
            shipped.name
            for shipped, pattern in zip(SHIPPED, JUDGE._patterns, strict=True)
            if pattern.search(encoded)
        ),
        None,
    )
    assert named(JUDGE(request(text), CALLER)) == one_by_one


# --- linear time ---


def test_the_rules_are_matched_by_re2_alone() -> None:
    """Linear time is RE2's guarantee; it holds as long as no other engine sees a pattern."""
    tree = ast.parse(Path(rules_module.__file__).read_text("utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert "re2" in imported
    assert not imported & {"re", "regex"}
    assert {type(pattern).__module__ for pattern in JUDGE._patterns} == {"re2"}


class _CountingSet:
    """Notes the bytes of every pass, and whether the automaton got through or gave up."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.passes: list[tuple[int, bool]] = []

    def Match(self, text: bytes) -> Any:
        matches = self.inner.Match(text)
        self.passes.append((len(text), bool(matches)))
        return matches


@pytest.mark.parametrize(
    "unit",
    ["a", "1", "4111 ", "write a ", "order ", "my the my the ", "写一个", "送", "$1", "卡", "+1-(", "DE89 ", "99,"],
)
def test_one_pass_a_set_over_a_megabyte(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte is read in one pass, and the slower way, pattern after pattern, is never needed."""
    counting = [_CountingSet(each) for each in JUDGE._sets]
    monkeypatch.setattr(JUDGE, "_sets", tuple(counting))
    monkeypatch.setattr(JUDGE, "_patterns", ())
    texts = [(unit * (chars // len(unit) + 1))[:chars] for chars in (100_000, 1_000_000)]
    for text in texts:
        JUDGE(request(text), CALLER)
    for each in counting:
        assert each.passes == [(len(text.encode()), True) for text in texts]


def test_changing_digits_and_separators_are_one_pass_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly a state of the automaton is met twice; a fixed recurrence stands in for chance."""
    alphabet = "0123456789 -.,$+()订单号元块写诗卡"
    state, chars = 1, []
    for _ in range(100_000):
        state = (state * 1103515245 + 12345) % 2**31
        chars.append(alphabet[(state >> 16) % len(alphabet)])
    counting = [_CountingSet(each) for each in JUDGE._sets]
    monkeypatch.setattr(JUDGE, "_sets", tuple(counting))
    text = "".join(chars)
    JUDGE(request(text), CALLER)
    for each in counting:
        assert each.passes == [(len(text.encode()), True)]
