"""The runner of a chaos run: starts clients and a server on one warehouse, kills and pauses them, and compares.

`make chaos KILLS=10000 SEED=7`, or `python -m chaos_run --help` with tests/chaos and tests/support on the path. One thread,
so that it may fork: a client starts in a few milliseconds with everything imported. Every decision follows from the seed; the moment
at which a signal arrives does not, so a repeated run does the same acts with the same faults, at slightly other moments.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_acts import WRITES
from chaos_checks import check, settle, watch
from chaos_client import Client, die_with_parent, make_tables, rehearse
from chaos_journal import History
from chaos_places import Place, bucket, small_disk
from chaos_plan import Event, abandons, events_of, life_of
from chaos_report import Report
from chaos_server import Server, is_running

READER = "reader"
_CHECK_TIMEOUT_S = 240.0
_BEGINS_WITHIN_S = 8.0
_JAVA_ENDS_WITHIN_S = 240.0  # on a machine that has much else to do
_UNAVAILABLE = 5  # the exit code of a command whose storage failed


@dataclass
class Life:
    """A process of a client that runs now."""

    pid: int
    plan: dict[str, Any]
    journal_bytes: int
    kill_at: float
    stop_at: float | None
    has_begun: bool = False
    continue_at: float | None = None


def forked(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a new process, whose standard output and error go to a file; return its id."""
    sys.stdout.flush()
    if (pid := os.fork()) != 0:
        return pid
    code = 1
    try:
        die_with_parent()
        tempfile.tempdir = str(log.parent / "tmp")  # what Spark and DuckDB spill
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Run:
    """One warehouse with its clients, until a number of kills is reached."""

    def __init__(self, options: argparse.Namespace, report: Report, place: Place, seed: str, kills: int) -> None:
        self.options, self.report, self.place, self.seed, self.kills = options, report, place, seed, kills
        self.work = place.work
        self.clients = [f"c{number}" for number in range(options.clients)]
        self.histories = {name: History(name) for name in (*self.clients, READER, "server")}
        self.lives: dict[str, Life] = {}
        self.numbers = dict.fromkeys(self.clients, 0)
        self.killed = 0
        self.server: Server | None = None
        self.server_continues_at: float | None = None
        kinds = ["kill server", "stop server"] + (["kill java"] if options.spark else [])
        kinds += ["disk full"] if place.disk is not None else []
        self.events = events_of(seed, kills, every=options.event_every, kinds=kinds) if options.server else []
        self.reader: int | None = None
        self.java: dict[int, float] = {}  # of ended servers, and when those ended

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do everything; stops at the first finding."""
        try:
            self.in_child(lambda: _make(self.place.location), "make")
            if self.options.server:
                self.server = Server(self.place.location, self.work, {"seed": self.seed}, spark=self.options.spark)
            next_check = self.options.round
            while self.killed < self.kills and not self.report.failed:
                self.step()
                if self.killed >= next_check:
                    self.check()
                    next_check = self.killed + self.options.round
                time.sleep(0.004)
            if not self.report.failed:
                self.check(last=True)
        finally:
            self.end()
            for name, history in self.histories.items():
                history.read(self.journal(name))
            self.report.add_histories(self.histories.values())

    def step(self) -> None:
        """Start what is missing, and kill, stop and continue what is due."""
        now = time.monotonic()
        if self.reader is None:
            plan = {"location": self.place.location, "journal": str(self.journal(READER))}
            self.reader = forked(lambda: watch(plan), self.work / "reader.log")
        for client in self.clients:
            if client not in self.lives:
                self.lives[client] = self.start(client, now)
            else:
                self.look_after(client, self.lives[client], now)
        if self.server is not None:
            self.look_after_server(now)
            self.look_for_java()
        while self.events and self.events[0].at_kill <= self.killed:
            self.happen(self.events.pop(0), now)

    def start(self, client: str, now: float) -> Life:
        self.numbers[client] += 1
        history = self.histories[client].read(self.journal(client))
        resolve = [
            act.as_dict()
            for act in history.in_doubt
            if act.kind in WRITES and (act.group or not abandons(self.seed, client, act.turn))
        ]
        plan = {
            **life_of(self.seed, client, self.numbers[client]),
            "location": self.place.location,
            "journal": str(self.journal(client)),
            "server": str(self.work / "server.json"),
            "turn": history.next_turn,
            "generations": history.generations,
            "resolve": resolve,
            "reached": len(history.failpoints),
        }
        self.report.other_faults["wrong clock"] += "clock" in plan
        pid = forked(lambda: Client(plan).run(), self.work / f"{client}.log")
        stop_at = now + plan["stop_after_s"] if "stop_after_s" in plan else None
        return Life(pid, plan, self.journal_bytes(client), now + _BEGINS_WITHIN_S, stop_at)

    def look_after(self, client: str, life: Life, now: float) -> None:
        ended, status = os.waitpid(life.pid, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status) and life.continue_at is None:
            life.continue_at = now + life.plan.get("stopped_s", 0.3)
            self.report.other_faults[
                "client paused at a failpoint" if "pause_at" in life.plan else "client stopped"
            ] += 1
        elif ended and not os.WIFSTOPPED(status):
            self.ended(client, life, status)
        elif life.continue_at is not None and now >= life.continue_at:
            os.kill(life.pid, signal.SIGCONT)
            life.continue_at = None
            life.kill_at = max(life.kill_at, now + 0.3)
        elif life.stop_at is not None and now >= life.stop_at:
            life.stop_at = None
            os.kill(life.pid, signal.SIGSTOP)
        elif life.continue_at is None and now >= life.kill_at:
            os.kill(life.pid, signal.SIGKILL)
        elif not life.has_begun and self.journal_bytes(client) > life.journal_bytes:
            # The time until the kill counts from the first act: on a slow machine a client takes long to start.
            life.has_begun, life.kill_at = True, now + life.plan["kill_after_s"] * self.options.patience

    def ended(self, client: str, life: Life, status: int) -> None:
        del self.lives[client]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            reached = self.histories[client].read(self.journal(client)).failpoints
            at_failpoint = (
                bool(reached) and reached[-1] == life.plan.get("failpoint") and len(reached) > life.plan["reached"]
            )
            self.count_kill("client at a failpoint" if at_failpoint else "client at a random moment")
        else:
            self.found(
                "crashed",
                f"{client}, life {life.plan['life']}, ended with {status}: {tail(self.work / f'{client}.log')}",
            )

    def count_kill(self, kind: str) -> None:
        self.killed += 1
        self.report.kills[kind] += 1

    def found(self, kind: str, text: str) -> None:
        self.report.found[kind].append(f"warehouse {self.report.warehouses}, kill {self.killed}: {text}")

    # -- the server ---------------------------------------------------------------------------------------------

    def look_after_server(self, now: float) -> None:
        assert self.server is not None
        self.server.look()
        if self.server_continues_at is not None and now >= self.server_continues_at:
            self.server.send(signal.SIGCONT)
            self.server_continues_at = None
        if self.server.has_ended():
            code = self.server.process.returncode
            self.end_server()
            if code == -signal.SIGKILL:
                self.count_kill("server at a failpoint")
            elif code == _UNAVAILABLE:
                self.report.other_faults["server that could not start"] += 1
            else:
                self.found("crashed", f"the server ended with {code}: {tail(self.work / 'server.log')}")
            self.start_server({"seed": f"{self.seed}/after/{self.killed}"})

    def end_server(self) -> None:
        """Kill the server; its Java process then has some time to notice."""
        assert self.server is not None
        self.server.send(signal.SIGCONT)
        if (java := self.server.end()) is not None:
            self.java[java] = time.monotonic()
        self.server = None

    def look_for_java(self) -> None:
        """Report Java processes that outlive their server."""
        for pid, since in list(self.java.items()):
            if not is_running(pid):
                del self.java[pid]
            elif time.monotonic() - since > _JAVA_ENDS_WITHIN_S:
                del self.java[pid]
                os.kill(pid, signal.SIGQUIT)  # it writes what its threads do to the log of the server
                time.sleep(2)
                os.kill(pid, signal.SIGKILL)
                self.found("crashed", f"the Java process {pid} outlived its server by {_JAVA_ENDS_WITHIN_S} s")

    def start_server(self, plan: dict[str, Any]) -> None:
        self.server_continues_at = None
        self.server = Server(self.place.location, self.work, plan, spark=self.options.spark)

    def happen(self, event: Event, now: float) -> None:
        """Let something happen to the server or to the disk."""
        assert self.server is not None
        if event.kind == "kill server":
            self.end_server()
            self.count_kill("server at a random moment")
            self.start_server(event.server)
        elif event.kind == "kill java":
            if (java := self.server.java()) is not None:
                os.kill(java, signal.SIGKILL)
                self.count_kill("Java process of the server")
        elif event.kind == "stop server":
            self.server.send(signal.SIGSTOP)
            self.server_continues_at = now + event.seconds
            self.report.other_faults["server stopped"] += 1
        elif event.kind == "disk full" and self.place.disk is not None:
            with self.place.disk.full():
                self.report.other_faults["disk full"] += 1
                until = time.monotonic() + event.seconds
                while time.monotonic() < until:
                    self.step()
                    time.sleep(0.004)

    # -- checks -------------------------------------------------------------------------------------------------

    def check(self, *, last: bool = False) -> None:
        """Kill all clients and compare; at the last check also after everything is folded."""
        self.kill_clients()
        if last and self.server is not None:
            self.end_server()
        self.compare()
        if last and not self.report.failed:
            self.in_child(lambda: settle(self.place.location), "settle")
            self.compare()

    def compare(self) -> None:
        answer = self.work / "check.json"
        answer.unlink(missing_ok=True)
        histories = list(self.histories.values())
        self.in_child(lambda: check(self.place.location, histories, answer), "check")
        if not answer.exists():
            return
        self.report.checks += 1
        result = json.loads(answer.read_text())
        self.report.checks_by.update(result["read_by"])
        for how, found in result["found"].items():
            for kind, texts in found.items():
                for text in texts:
                    self.found(kind, f"read by {how}: {text}")

    def in_child(self, work: Callable[[], None], name: str) -> None:
        """Do something in a fresh process and wait for it."""
        pid = forked(work, self.work / f"{name}.log")
        deadline = time.monotonic() + _CHECK_TIMEOUT_S
        while (status := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            if self.server is not None and self.server_continues_at is not None:
                self.look_after_server(time.monotonic())
            time.sleep(0.005)
        if status[1] != 0:
            self.found("crashed", f"{name} ended with {status[1]}: {tail(self.work / f'{name}.log')}")

    def kill_clients(self) -> None:
        """Kill what runs now, without counting it."""
        for life in self.lives.values():
            kill(life.pid)
        self.lives.clear()
        if self.reader is not None:
            kill(self.reader)
            self.reader = None

    def end(self) -> None:
        self.kill_clients()
        if self.server is not None:
            self.end_server()
        while self.java:
            self.look_for_java()
            time.sleep(0.05)

    def journal_bytes(self, client: str) -> int:
        path = self.journal(client)
        return path.stat().st_size if path.exists() else 0

    def journal(self, name: str) -> Path:
        return self.work / f"{name}.journal"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    while os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
        pass


def _make(location: str) -> None:
    import crannog

    with crannog.connect(location) as lake:
        make_tables(lake)


def tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:] if path.exists() else ""


def import_everything(work: Path) -> None:
    """Import in the runner what its forks use, so that they start in milliseconds; using it here would start threads."""
    (work / "tmp").mkdir(parents=True)
    pid = forked(lambda: rehearse(work), work / "log")
    if os.waitpid(pid, 0)[1] != 0:
        raise AssertionError(f"a client without faults failed: {tail(work / 'log')}")
    for name in json.loads((work / "modules").read_text()):
        with suppress(Exception):
            importlib.import_module(name)
    shutil.rmtree(work)


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kill processes of Crannog and check that nothing is lost.")
    parser.add_argument("--kills", type=int, default=10_000, help="how many processes to kill")
    parser.add_argument("--seconds", type=float, default=10**9, help="stop earlier after this time, after a last check")
    parser.add_argument("--seed", default="", help="the seed of all decisions; a new one by default")
    parser.add_argument("--clients", type=int, default=3, help="clients at once")
    parser.add_argument("--place", choices=["folder", "bucket"], default="folder", help="where the warehouse is")
    parser.add_argument("--no-server", dest="server", action="store_false", help="clients only")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="a server that folds nothing by itself")
    parser.add_argument("--warehouse-kills", type=int, default=300, help="begin with a new warehouse after this many")
    parser.add_argument("--round", type=int, default=60, help="kills between two checks")
    parser.add_argument("--event-every", type=int, default=15, help="kills between two events of the server or disk")
    parser.add_argument(
        "--patience", type=float, default=1.0, help="factor for the length of a life, for a slow machine"
    )
    parser.add_argument("--work", type=Path, default=None, help="a folder for warehouses and journals")
    parser.add_argument("--report", type=Path, default=None, help="write the report to this file (JSON)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run; return 1 if anything was found."""
    options = options_of(arguments)
    seed = options.seed or str(random.SystemRandom().randrange(10**9))
    print(f"seed {seed}", flush=True)
    parent = options.work or Path(tempfile.mkdtemp(prefix="crannog-chaos-"))
    import_everything(parent / "rehearsal")
    report = Report(seed, options.place, options.clients)
    began, total = time.monotonic(), 0
    while total < options.kills and not report.failed and time.monotonic() - began < options.seconds:
        report.warehouses += 1
        kills = min(options.warehouse_kills, options.kills - total)
        with (bucket if options.place == "bucket" else small_disk)(parent / str(report.warehouses)) as place:
            Run(options, report, place, f"{seed}/{report.warehouses}", kills).run()
            if report.failed:
                place.keep()
        total = sum(report.kills.values())
        report.seconds = round(time.monotonic() - began, 1)
        if options.report is not None:
            report.write(options.report)
        print(f"{total:,} kills in {report.seconds:,.0f} s, {report.checks} checks", flush=True)
    print(report.table())
    if report.failed:
        print(json.dumps(report.as_dict()["findings"], indent=2))
        print(f"The warehouse and the journals are in {parent / str(report.warehouses)}; the seed is {seed}")
        return 1
    shutil.rmtree(parent, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
