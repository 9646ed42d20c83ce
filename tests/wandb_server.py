"""Stand in for W&B's server: it answers what the client of wandb 0.31 asks of it, and keeps what is sent to it."""

import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

import yaml

OPERATION = re.compile(r"(?:query|mutation)\s+(\w+)")
ENTITY = {"id": "entity", "name": "tester"}
MISSING = {  # what older servers lack, and the client does without
    "OrganizationCoreWeaveOrganizationID": {"entity": None},
    "XXHashDigestsEnabled": {"entity": None},
    "FetchArtifactDigestAlgorithm": {"project": None},
    "ArtifactType": {"project": None},
}


@dataclass
class SentRun:
    """What was sent of a run, in all its starts."""

    project: str
    first: dict[str, Any]  # the variables of its first upsert: groupName, displayName, tags, sweep
    starts: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    preempting: bool = False
    exit_code: int | None = None  # of a start that has said how it ended

    @property
    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.get("wandb-history.jsonl", [])]

    def read_metric(self, name: str) -> list[tuple[int, Any]]:
        """Give the values of a metric with their optimizer steps, in the order in which they were sent."""
        return [(row["trainer/global_step"], row[name]) for row in self.history if name in row]

    def append(self, sent: dict[str, Any]) -> None:
        """Take a post of the file stream: lines from an offset on, a summary, and how the run has ended."""
        for name, part in (sent.get("files") or {}).items():
            if name == "wandb-summary.json":
                self.summary = json.loads(part["content"][-1])
            else:
                own = self.lines.setdefault(name, [])
                own[part["offset"] :] = part["content"]
        self.preempting |= sent.get("preempting", False)
        if sent.get("complete"):
            self.exit_code = sent["exitcode"]


@dataclass
class Artifact:
    """A version of an artifact: its run, name, type, aliases, and files."""

    run: str
    name: str
    kind: str
    aliases: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    committed: bool = False


class WandbServer:
    """Runs, artifacts and sweeps that were sent; `choices` are the values that a sweep's next runs get."""

    def __init__(self) -> None:
        self.url = ""
        self.dead = False  # whether it hangs up without an answer
        self.runs: dict[str, SentRun] = {}
        self.artifacts: list[Artifact] = []
        self.sweeps: list[dict[str, Any]] = []
        self.choices: deque[dict[str, Any]] = deque()
        self.commands: list[dict[str, Any]] = []  # that agents were given
        self.unknown: list[str] = []  # operations that it has no answer to
        self.bodies: list[bytes] = []  # all that was sent to it
        self.lock = threading.Lock()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of GraphQL."""
        found = OPERATION.search(asked["query"])
        name, values = found[1] if found else "", asked.get("variables") or {}
        method = getattr(self, f"answer_{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', name).lower()}", None)
        if method is None and name not in MISSING:
            self.unknown.append(name)
            return {"errors": [{"message": f"{name} is unknown"}]}
        with self.lock:
            return {"data": MISSING[name] if method is None else method(values)}

    def answer_viewer(self, values: dict[str, Any]) -> dict[str, Any]:
        viewer = {"id": "user", "entity": "tester", "username": "tester", "email": "t@example.org", "flags": "{}"}
        return {"viewer": {**viewer, "teams": {"edges": []}}}

    def answer_server_features_query(self, values: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def answer_run_resume_status(self, values: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(values["name"])
        bucket = run and {
            "id": values["name"],
            "name": values["name"],
            "summaryMetrics": json.dumps(run.summary),
            "displayName": run.first["displayName"],
            "logLineCount": len(run.lines.get("output.log", [])),
            "historyLineCount": len(run.lines.get("wandb-history.jsonl", [])),
            "eventsLineCount": len(run.lines.get("wandb-events.jsonl", [])),
            "historyTail": json.dumps(run.lines.get("wandb-history.jsonl", [])[-1:]),
            "eventsTail": json.dumps(run.lines.get("wandb-events.jsonl", [])[-1:]),
            "config": json.dumps(run.config),
            "tags": run.first["tags"],
            "notes": None,
            "wandbConfig": json.dumps({"t": 1}),  # it has been started, not only planned
        }
        return {"model": {"id": "project", "name": values["project"], "entity": ENTITY, "bucket": bucket}}

    def answer_upsert_bucket(self, values: dict[str, Any]) -> dict[str, Any]:
        name = values["name"]
        run = self.runs.setdefault(name, SentRun(values["project"], values))
        if values["host"] is not None:  # only the first one of a start names its machine
            run.starts, run.exit_code, run.preempting = run.starts + 1, None, False
        run.config |= json.loads(values["config"] or "{}")
        bucket = {
            "id": name,
            "name": name,
            "displayName": run.first["displayName"],
            "description": None,
            "config": json.dumps(run.config),
            "sweepName": run.first["sweep"],
            "project": {"id": "project", "name": run.project, "entity": ENTITY},
            "historyLineCount": len(run.lines.get("wandb-history.jsonl", [])),
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": run.starts == 1}}

    def answer_create_run_files(self, values: dict[str, Any]) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": self.make_url("runs", values["run"], name)} for name in values["files"]]
        return {"createRunFiles": {"runID": values["run"], "uploadHeaders": [], "files": files}}

    def answer_create_artifact(self, values: dict[str, Any]) -> dict[str, Any]:
        new = values["input"]
        aliases = [one["alias"] for one in new["aliases"]]
        name, kind = new["artifactCollectionName"], new["artifactTypeName"]
        self.artifacts.append(Artifact(new["runName"], name, kind, aliases))
        made = {"id": str(len(self.artifacts) - 1), "state": "PENDING", "artifactSequence": {"latestArtifact": None}}
        return {"createArtifact": {"artifact": made}}

    def answer_create_artifact_manifest(self, values: dict[str, Any]) -> dict[str, Any]:
        return self.describe_manifest("createArtifactManifest", values["artifactID"])

    def answer_update_artifact_manifest(self, values: dict[str, Any]) -> dict[str, Any]:
        return self.describe_manifest("updateArtifactManifest", values["artifactManifestID"])

    def describe_manifest(self, field: str, artifact: str) -> dict[str, Any]:
        file = {"id": "file", "uploadUrl": self.make_url("artifacts", artifact, ""), "uploadHeaders": []}
        return {field: {"artifactManifest": {"id": artifact, "file": file}}}

    def answer_create_artifact_files(self, values: dict[str, Any]) -> dict[str, Any]:
        nodes = [
            {
                "storagePath": file["name"],
                "uploadUrl": self.make_url("artifacts", file["artifactID"], file["name"]),
                "uploadHeaders": [],
                "uploadMultipartUrls": None,
                "artifact": {"id": file["artifactID"]},
            }
            for file in values["input"]["artifactFiles"]
        ]
        return {"createArtifactFiles": {"files": {"edges": [{"node": node} for node in nodes]}}}

    def answer_commit_artifact(self, values: dict[str, Any]) -> dict[str, Any]:
        self.artifacts[int(values["artifactID"])].committed = True
        return {"commitArtifact": {"artifact": {"id": values["artifactID"], "digest": "digest"}}}

    def answer_upsert_sweep(self, values: dict[str, Any]) -> dict[str, Any]:
        self.sweeps.append(yaml.safe_load(values["config"]))
        name = f"sweep{len(self.sweeps) - 1}"
        project = {"id": "project", "name": values["projectName"], "entity": ENTITY}
        return {"upsertSweep": {"sweep": {"name": name, "project": project}, "configValidationWarnings": []}}

    def answer_sweep_with_runs(self, values: dict[str, Any]) -> dict[str, Any]:
        config = yaml.safe_dump(self.find_config(values["sweep"]))
        return {"project": {"sweep": {"config": config, "runs": {"edges": []}}}}

    def answer_create_agent(self, values: dict[str, Any]) -> dict[str, Any]:
        return {"createAgent": {"agent": {"id": values["sweep"]}}}

    def answer_heartbeat(self, values: dict[str, Any]) -> dict[str, Any]:
        """Tell an agent that runs nothing what to run: first a run that was preempted, then the next values."""
        commands: list[dict[str, Any]] = []
        if not json.loads(values["runState"]):
            commands.append(self.choose_command(values["id"]))
            self.commands += commands
        return {"agentHeartbeat": {"agent": {"id": values["id"]}, "commands": json.dumps(commands)}}

    def find_config(self, sweep: str) -> dict[str, Any]:
        return self.sweeps[int(sweep.removeprefix("sweep"))]

    def choose_command(self, sweep: str) -> dict[str, Any]:
        for command in self.commands:
            run = self.runs.get(command.get("run_id", ""))
            if run is not None and run.preempting and run.exit_code:
                return {**command, "type": "resume"}
        if not self.choices:
            return {"type": "exit"}
        chosen = {name: {"value": value} for name, value in self.choices.popleft().items()}
        number = sum(command["type"] == "run" for command in self.commands)
        program = self.find_config(sweep)["program"]
        return {"type": "run", "run_id": f"{sweep}run{number}", "program": program, "args": chosen}

    def make_url(self, *parts: str) -> str:
        return "/".join([self.url, "storage", *(quote(part, safe="") for part in parts)])

    def store(self, path: str, content: bytes) -> None:
        """Take an uploaded file of a run or an artifact."""
        _, _, place, owner, name = map(unquote, path.split("/"))
        if place == "runs":
            self.runs[owner].files[name] = content
        elif name:  # a manifest has none
            self.artifacts[int(owner)].files[name] = content


@contextmanager
def serve() -> Iterator[WandbServer]:
    """Serve a stand-in on a free port of this machine."""
    own = WandbServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def take(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if own.dead:
                self.close_connection = True
                return
            own.bodies.append(content)
            answer: Any = {}
            if self.path == "/graphql":
                answer = own.answer(json.loads(content))
            elif self.path.startswith("/files/"):
                with own.lock:
                    own.runs[self.path.split("/")[4]].append(json.loads(content))
            elif self.path.startswith("/storage/"):
                own.store(self.path, content)
            written = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        do_GET = do_POST = do_PUT = take  # noqa: N815 - the names that http.server calls

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.handle_error = lambda *arguments: None  # clients that are killed reset their connections
        own.url = f"http://127.0.0.1:{listener.server_port}"
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        yield own
        listener.shutdown()
