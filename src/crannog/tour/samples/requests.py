"""Requests of a shop through its services: most are quick, some are slow, some fail, and each for a reason."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from crannog.tour.samples.spans import CLIENT, CONSUMER, INTERNAL, MS, PRODUCER, SERVER, Made

_HOURS = 12
_COUNTRIES = ("de", "fr", "gb", "ie", "nl", "se", "us")
_STACK = """Traceback (most recent call last):
  File "/app/payments/charge.py", line 88, in charge
    answer = bank.authorize(card, amount)
  File "/app/payments/bank.py", line 41, in authorize
    raise CardDeclined(answer.code)
payments.errors.CardDeclined: insufficient_funds"""


@dataclass(slots=True)
class _Trace:
    """A trace while it is made."""

    dice: random.Random
    trace_id: str
    spans: list[Made]

    def add(self, parent: Made | None, service: str, name: str, start: int, ms: float, kind: int = INTERNAL) -> Made:
        """Add a span; the attributes are the caller's."""
        span_id = f"{self.dice.getrandbits(64) | 1:016x}"
        end = start + max(int(ms * MS), 20_000)
        made = Made(self.trace_id, span_id, parent.span_id if parent else "", service, name, kind, start, end)
        self.spans.append(made)
        return made

    def query(self, parent: Made, table: str, start: int, ms: float) -> Made:
        """Add a query of the shop's database."""
        span = self.add(parent, parent.service, f"SELECT shop.{table}", start, ms, CLIENT)
        span.attributes |= {
            "db.system.name": "postgresql",
            "db.namespace": "shop",
            "db.query.text": f"SELECT * FROM {table} WHERE id = $1",
            "server.address": "db-1.shop.internal",
        }
        return span


def request_traces(dice: random.Random, count: int, now: int, hours: float = _HOURS) -> Iterator[list[Made]]:
    """Yield the spans of each request of some hours, the oldest first; more come at the end than at the beginning."""
    reach = hours * 3_600 * 1_000 * MS
    starts = sorted(now - int(reach * (1 - dice.random() ** 0.5)) - 2_000 * MS for _ in range(count))
    makers = (_browse, _browse, _browse, _search, _search, _checkout, _checkout, _nightly)
    for start in starts:
        trace = _Trace(dice, f"{dice.getrandbits(128) | 1:032x}", [])
        dice.choice(makers)(trace, start)
        yield trace.spans


def _ms(dice: random.Random, typical: float) -> float:
    return float(dice.lognormvariate(0, 0.45)) * typical


def _front(trace: _Trace, method: str, route: str, start: int, ms: float) -> Made:
    dice = trace.dice
    root = trace.add(None, "web", f"{method} {route}", start, ms, SERVER)
    root.attributes = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": 200,
        "url.path": route.replace("{id}", str(dice.randint(1, 900))),
        "user_agent.original": dice.choice(("Firefox/147", "Chrome/156", "Safari/20")),
        "client.geo.country_iso_code": dice.choice(_COUNTRIES),
        "enduser.id": f"customer-{dice.randint(1, 200)}",
        "app.version": "2.4.1" if dice.random() < 0.8 else "2.5.0-rc1",
    }
    return root


def _browse(trace: _Trace, start: int) -> None:
    dice = trace.dice
    ms = _ms(dice, 28)
    root = _front(trace, "GET", "/products/{id}", start, ms)
    call = trace.add(root, "web", "GET catalogue", start + 2 * MS, ms - 6, CLIENT)
    server = trace.add(call, "catalogue", "GET /items/{id}", start + 3 * MS, ms - 9, SERVER)
    hit = dice.random() < 0.7
    cache = trace.add(server, "catalogue", "cache get", start + 4 * MS, 0.6, CLIENT)
    cache.attributes = {"cache.hit": hit, "db.system.name": "redis"}
    if not hit:
        trace.query(server, "products", start + 5 * MS, max(ms - 14, 1))


def _search(trace: _Trace, start: int) -> None:
    dice = trace.dice
    # The release candidate has no index: its searches are slow, and the attributes show why.
    root = _front(trace, "GET", "/search", start, 0)
    slow = root.attributes["app.version"] == "2.5.0-rc1" and dice.random() < 0.6
    ms = _ms(dice, 420 if slow else 45)
    root.end = start + int(ms * MS)
    call = trace.add(root, "web", "POST search", start + MS, ms - 3, CLIENT)
    server = trace.add(call, "search", "POST /query", start + 2 * MS, ms - 5, SERVER)
    server.attributes = {
        "search.terms": dice.choice(("boots", "rain coat", "tent", "kayak")),
        "search.indexed": not slow,
    }
    shards = 6 if slow else 3
    for shard in range(shards):
        part = trace.add(server, "search", f"shard {shard}", start + 4 * MS, (ms - 9) * (0.5 + dice.random() / 2))
        part.attributes = {"search.shard": shard}


def _checkout(trace: _Trace, start: int) -> None:
    dice = trace.dice
    ms = _ms(dice, 180)
    declined, slow_bank = dice.random() < 0.08, dice.random() < 0.05
    bank_ms = ms * (6 if slow_bank else 0.45)
    total = ms + (bank_ms if slow_bank else 0)
    root = _front(trace, "POST", "/checkout", start, total)
    trace.add(root, "web", "validate cart", start + MS, ms * 0.05).attributes = {"cart.items": dice.randint(1, 9)}
    reserve = trace.add(root, "web", "POST stock", start + int(ms * 0.08 * MS), ms * 0.3, CLIENT)
    stock = trace.add(reserve, "stock", "POST /reserve", reserve.start + MS, ms * 0.3 - 2, SERVER)
    for _ in range(dice.randint(1, 4)):
        trace.query(stock, "inventory", stock.start + dice.randint(1, 5) * MS, ms * 0.08)
    pay = trace.add(root, "web", "POST payments", start + int(ms * 0.4 * MS), bank_ms + 8, CLIENT)
    charge = trace.add(pay, "payments", "POST /charge", pay.start + MS, bank_ms + 5, SERVER)
    bank = trace.add(charge, "payments", "POST bank/authorize", charge.start + 2 * MS, bank_ms, CLIENT)
    bank.attributes = {"server.address": "bank.example", "payment.method": dice.choice(("card", "card", "invoice"))}
    if declined:
        _decline(root, charge, bank)
        return
    sent = trace.add(root, "web", "orders publish", pay.end, 2, PRODUCER)
    sent.attributes = {"messaging.system": "kafka", "messaging.destination.name": "orders"}
    received = trace.add(sent, "mailer", "orders process", sent.end + 30 * MS, 20, CONSUMER)
    received.attributes = {"messaging.system": "kafka", "messaging.destination.name": "orders"}
    trace.add(received, "mailer", "send confirmation", received.start + 3 * MS, 14, CLIENT)


def _decline(root: Made, charge: Made, bank: Made) -> None:
    bank.error = "card declined: insufficient_funds"
    bank.events.append(
        (
            bank.end - MS // 2,
            "exception",
            {
                "exception.type": "payments.errors.CardDeclined",
                "exception.message": "insufficient_funds",
                "exception.stacktrace": _STACK,
            },
        )
    )
    charge.error = "card declined"
    charge.attributes["http.response.status_code"] = 402
    root.error, root.attributes["http.response.status_code"] = "payment failed", 402


def _nightly(trace: _Trace, start: int) -> None:
    dice = trace.dice
    if dice.random() < 0.7:
        _browse(trace, start)
        return
    items = dice.randint(5, 60)
    root = trace.add(None, "stock", "reconcile inventory", start, items * 9.0)
    root.attributes = {"job.items": items}
    for item in range(items):
        at = start + item * 9 * MS
        step = trace.add(root, "stock", "reconcile item", at, 8)
        step.attributes = {"item.id": dice.randint(1, 900)}
        trace.query(step, "inventory", at + MS, 2)
        if dice.random() < 0.01:
            step.error = "count differs from the ledger"
