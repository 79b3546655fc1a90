"""One thing has one word: the words of docs/glossary.md, in code, protos and what people read."""

import re
from collections.abc import Iterator

from tests.architecture.sources import ROOT, modules, say, tracked

BANNED = {
    "task": "job",
    "tasks": "jobs",
    "pod": "replica",
    "pods": "replicas",
    "workload": "job",
    "workloads": "jobs",
    "node": "host",
    "nodes": "hosts",
    "slot": "GPU",
    "slots": "GPUs",
    "tenant": "budget",
    "tenants": "budgets",
    "quota": "share",
    "quotas": "shares",
    "evict": "preempt",
    "evicts": "preempts",
    "evicted": "preempted",
    "eviction": "preemption",
    "evictions": "preemptions",
}
"""The word not to use, and the one to use."""

ALLOWED = frozenset(
    {
        # asyncio's and dataclasses' own words
        "Task",
        "TaskGroup",
        "create_task",
        # rich's
        "add_task",
        "slots",
        "__slots__",
        # the environment and the options of torchrun
        "NODE_RANK",
        "nnodes",
        # a setting of ClickHouse
        "distributed_ddl_task_timeout",
        # a budget is a node of the project tree (glossary)
        "BudgetNode",
    }
)

# A word that means something else where the text around it shows that; the words are then allowed in that module.
ELSEWHERE = {
    "the budget tree, whose budgets are its nodes": (
        re.compile(r"^from tenure\.domain\.tree import|^class BudgetNode\b|\btree\.nodes\b", re.MULTILINE),
        frozenset({"node", "nodes", "NODES_MAX"}),
    ),
    "columns of the records of LANL and of Grid'5000": (
        re.compile(r"LA-UR-05-7318|Failure Trace Archive"),
        frozenset({"nodes", "nodenumz", "node_id", "node_name"}),
    ),
    "the simulator's workload: all the jobs of a trace": (
        re.compile(r"^ *from simulator\.workload import|^class Workload\b", re.MULTILINE),
        frozenset({"workload", "Workload"}),
    ),
    "asyncio's tasks": (re.compile(r"asyncio\.(Task|create_task)"), frozenset({"task", "tasks", "_tasks"})),
    "the kernel's files and torchrun's options": (
        re.compile(r"/proc/\{pid\}/task/|--node-rank"),
        frozenset({"task", "node"}),
    ),
}

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WORD = re.compile(r"\w+")


def banned_in(text: str) -> Iterator[str]:
    """The identifiers and words of `text` that contain a banned word."""
    for word in _WORD.findall(text):
        if word not in ALLOWED and any(part.lower() in BANNED for part in _PART.findall(word)):
            yield word


def allowed_in(text: str) -> frozenset[str]:
    """What a module with this text may say beyond `ALLOWED`."""
    return frozenset[str]().union(*(words for sign, words in ELSEWHERE.values() if sign.search(text)))


def test_code() -> None:
    found = []
    for module in modules("tenure", "services", "simulator", "examples"):
        allowed = allowed_in(module.text)
        for number, line in enumerate(module.text.splitlines(), start=1):
            found += [f"{module.path}:{number} {word}" for word in banned_in(line) if word not in allowed]
    assert not found, say("not a word of the glossary", found)


def test_protos_scripts_and_schema() -> None:
    found = []
    for name in tracked():
        if name.endswith((".proto", ".sql")) or name in ("Makefile", ".ci/run"):
            for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1):
                found += [f"{name}:{number} {word}" for word in banned_in(line)]
    assert not found, say("not a word of the glossary", found)


def test_a_banned_word_is_found() -> None:
    assert list(banned_in("class PodSpec: nodes_free = node; make_slot(evictedJobs)")) == [
        "PodSpec",
        "nodes_free",
        "node",
        "make_slot",
        "evictedJobs",
    ]
    assert not list(banned_in("MASTER_ADDR NODE_RANK NNODES asyncio.create_task slots=True podium BudgetNode"))


def test_the_glossary_names_them() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text()
    singular = [word for word in BANNED if not word.endswith(("s", "ed", "ion"))]
    assert singular
    assert not [word for word in singular if word not in glossary]
