"""Builds in a browser: the list, one build while it runs, its graph, jobs, partitions with their lineage, two builds."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

from browsers import Visitor, check_accessible, check_width
from crannog.builds import BuildEvent, BuildRequestEvent, BuildRequestStatus, JobEvent, JobStatus
from crannog.builds.event_values import PartitionStatus
from crannog.builds.events import JobGraphEvent, PartitionEvent
from crannog.embedded import EmbeddedLake

_S = 1_000_000_000
HOSTILE = "//<img src=x onerror=alert(1)>:job"
PARTITION = "raw/<script>alert(2)</script>/day=1"


class Build:
    """A build of two jobs whose events a test writes one after the other."""

    def __init__(self, lake: EmbeddedLake, name: str) -> None:
        self.log, self.name, self.count = lake.builds, name, 0

    def add(self, *payloads: object) -> None:
        """Write some events that happen now."""
        events = []
        for payload in payloads:
            self.count += 1
            events.append(BuildEvent(f"{self.name}-{self.count}", time.time_ns(), self.name, payload))  # type: ignore[arg-type]
        self.log.append_events(events)

    def begin(self) -> None:
        """Write the plan: the first job reads nothing, the second what the first makes."""
        ask = (PARTITION, "made/second")
        first = {"outputs": [PARTITION], "inputs": []}
        second = {"outputs": ["made/second"], "inputs": [{"dep_type": "MATERIALIZE", "partition_ref": PARTITION}]}
        nodes = [{"job": {"label": HOSTILE}, "config": first}, {"job": {"label": "//second:job"}, "config": second}]
        self.add(
            BuildRequestEvent(BuildRequestStatus.RECEIVED, ask),
            JobGraphEvent({"nodes": nodes, "outputs": ["made/second"]}),
            BuildRequestEvent(BuildRequestStatus.EXECUTING, ask),
            JobEvent(f"{self.name}-r1", HOSTILE, (PARTITION,), JobStatus.SCHEDULED),
            JobEvent(f"{self.name}-r1", HOSTILE, (PARTITION,), JobStatus.RUNNING),
        )

    def end_first(self) -> None:
        """Complete the first job and let the second fail."""
        made = [{"outputs": ["made/second"], "inputs": [PARTITION]}]
        self.add(
            JobEvent(f"{self.name}-r1", HOSTILE, (PARTITION,), JobStatus.COMPLETED),
            PartitionEvent(PARTITION, PartitionStatus.AVAILABLE, "", f"{self.name}-r1"),
            JobEvent(f"{self.name}-r2", "//second:job", ("made/second",), JobStatus.RUNNING),
            JobEvent(
                f"{self.name}-r2", "//second:job", ("made/second",), JobStatus.FAILED, "disk <b>full</b>", None, made
            ),
            PartitionEvent("made/second", PartitionStatus.FAILED, "disk <b>full</b>", f"{self.name}-r2"),
            BuildRequestEvent(BuildRequestStatus.FAILED, (PARTITION,), "a job failed"),
        )


def test_builds_are_listed_by_status_and_found(visitor: Visitor) -> None:
    page = visitor.open("/builds")
    rows = page.get_by_role("region", name="Builds").locator("tbody tr")
    expect(rows.first).to_be_visible()
    everything = rows.count()
    page.get_by_role("button", name=re.compile("^failed")).click()
    expect(page.get_by_role("button", name=re.compile("^failed"))).to_have_attribute("aria-pressed", "true")
    expect(rows.filter(has_text="completed")).to_have_count(0)
    assert "status=failed" in page.url
    assert 0 < rows.count() < everything
    page.go_back()
    page.get_by_role("searchbox", name="Search").fill("no such build")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No build matches")).to_be_visible()
    page.get_by_role("link", name="show all builds").click()
    boxes = rows.get_by_role("checkbox")
    boxes.nth(1).check()
    boxes.nth(2).check()
    page.get_by_role("button", name="Compare 2 of 2").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Two builds")
    expect(page.get_by_role("region", name="Jobs")).to_contain_text("//clean:orders")
    assert re.search(r"/builds/compare\?a=build-\d+-\d&b=build-\d+-\d$", page.url)


def test_a_build_changes_while_one_looks(visitor: Visitor, lake: EmbeddedLake) -> None:
    build = Build(lake, "watched")
    build.begin()
    page = visitor.open("/builds/watched")
    head = page.locator(".page-head")
    expect(head).to_contain_text("executing")
    expect(head).to_contain_text("live")
    rows = page.get_by_role("table", name="Job runs").get_by_role("row")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("running")
    build.end_first()
    expect(rows).to_have_count(2)
    expect(head).to_contain_text("a job failed")
    expect(rows.nth(0)).to_contain_text("completed")
    expect(rows.nth(1)).to_contain_text("failed")
    # By keyboard from the first run to the second, which says why it failed.
    rows.nth(0).get_by_role("button").focus()
    page.keyboard.press("ArrowDown")
    expect(rows.nth(1).get_by_role("button")).to_be_focused()  # the row is shown first, in the next frame
    page.keyboard.press("Enter")
    expect(page.get_by_text("disk <b>full</b>").first).to_be_visible()
    assert "run=watched-r2" in page.url
    page.keyboard.press("Escape")
    expect(page.get_by_text("disk <b>full</b>")).to_have_count(0)


def test_the_job_graph_shows_states_and_labels_are_text(visitor: Visitor, lake: EmbeddedLake) -> None:
    build = Build(lake, "drawn/with <b>slash</b>")
    build.begin()
    build.end_first()
    page = visitor.open("/builds")
    page.get_by_role("link", name="drawn/with <b>slash</b>").click()
    page.get_by_role("tab", name="Graph").click()
    page.get_by_role("link", name=f"{HOSTILE}, completed").focus()
    page.keyboard.press("ArrowRight")
    second = page.get_by_role("link", name="//second:job, failed")
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("disk <b>full</b>").first).to_be_visible()
    page.reload()
    expect(second).to_have_attribute("aria-current", "true")
    assert page.locator("main img, main b").count() == 0
    page.get_by_role("tab", name="Events").click()
    page.get_by_label("Kind").select_option("partition")
    expect(page.get_by_role("region", name="Events").locator("tbody tr")).to_have_count(2)


def test_lineage_leads_from_partition_to_partition(visitor: Visitor) -> None:
    page = visitor.open("/partitions")
    page.get_by_role("searchbox", name="Search").fill("marts/revenue")
    page.get_by_role("region", name="Partitions").get_by_role("link", name=re.compile("^marts.revenue")).nth(1).click()
    graph = page.get_by_role("region", name="Lineage")
    expect(graph.get_by_role("link")).to_have_count(5)
    graph.get_by_role("link", name=re.compile("^clean.orders")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("^clean.orders"))
    # Up to what it was made of, and down to what was made of it.
    expect(graph.get_by_role("link")).to_have_count(4)
    page.get_by_label("Direction").select_option("upstream")
    expect(graph.get_by_role("link")).to_have_count(2)
    assert "direction=upstream" in page.url


def test_a_job_shows_its_runs_over_time(visitor: Visitor) -> None:
    page = visitor.open("/jobs")
    page.get_by_role("button", name="Longest").click()
    expect(page.get_by_role("region", name="Jobs").locator("tbody th").first).to_have_text("//marts:churn")
    page.get_by_role("link", name="//marts:revenue").click()
    expect(page.get_by_text("Flakiness")).to_be_visible()
    expect(page.locator(".chart canvas")).to_be_visible()
    page.get_by_role("region", name="Runs").get_by_role("link").first.click()
    expect(page.locator(".timeline-row.chosen")).to_contain_text("//marts:revenue")


def test_what_is_missing_says_what_to_do(visitor: Visitor) -> None:
    page = visitor.open("/builds/nowhere")
    expect(page.get_by_text("There is no such build")).to_be_visible()
    page = visitor.open("/partitions?ref=nowhere")
    expect(page.get_by_text("The log has no state of this partition")).to_be_visible()


ADDRESSES = (
    "/builds",
    "/builds/{build}",
    "/builds/{build}?view=graph",
    "/builds/compare?a={build}&b={build}",
    "/jobs?job=//marts:revenue",
    "/partitions",
    "/partitions?ref=marts/revenue/date={day}",
)


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)])
def test_the_pages_of_builds_are_accessible_and_fit(
    visitor: Visitor, lake: EmbeddedLake, width: int, dark: bool
) -> None:
    names = [build.build_request_id for build in lake.builds.list_build_requests(limit=100).builds]
    build = next(name for name in names if re.fullmatch(r"build-\d+-1", name))
    page = visitor.open("/builds", width=width, dark=dark)
    for address in ADDRESSES:
        day = f"{build[6:10]}-{build[10:12]}-{build[12:14]}"
        page.goto(visitor.url + address.format(build=build, day=day))
        page.wait_for_selector("main table, main [role=table], main svg a")
        page.wait_for_timeout(300)  # charts and graphs are drawn by what loads later
        check_width(page)
        check_accessible(page)
