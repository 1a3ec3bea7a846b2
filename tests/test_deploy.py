"""The examples in ``deploy/`` and the Dockerfile: each passes its own tool, and its commands are ours."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from manyhands import sagemaker
from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.cli.main import VERBS, build
from manyhands.errors import UsageError
from manyhands.records import Resources, Silent
from manyhands.settings import ReadingSettings, TrainingSettings
from manyhands.training.job import Call, job_for

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
TOOLS = Path(sys.executable).parent
OURS = ("train", "crew", "serve")  # of Kubernetes itself; the others are of operators
LINT = "{extends: default, rules: {line-length: {max: 120}, document-start: disable}}"


def check(program: str, *arguments: object) -> None:
    command = [str(TOOLS / program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def manifests(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text())]


def containers(part: Any) -> Iterator[dict[str, Any]]:
    """All containers that a manifest has, however deep."""
    if isinstance(part, dict):
        yield from part.get("containers", [])
        for value in part.values():
            yield from containers(value)


def steps() -> list[dict[str, Any]]:
    return json.loads((DEPLOY / "emr" / "steps.json").read_text())


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of manyhands that an example has as it stands."""
    for name in OURS:
        for container in (c for part in manifests(name) for c in containers(part)):
            if len(container["args"]) > 1:  # else it is asked for as SageMaker does
                yield f"{name}.yaml", container["args"]
    (ray,), (spark,) = manifests("ray"), manifests("spark")
    yield "ray.yaml", shlex.split(ray["spec"]["entrypoint"])[1:]
    yield "spark.yaml", spark["spec"]["arguments"]
    for step in steps():
        program = next(n for n, word in enumerate(step["Args"]) if word.endswith("manyhands/__main__.py"))
        yield f"steps.json: {step['Name']}", step["Args"][program + 1 :]


def parse(words: list[str]) -> None:
    """As the command line does, up to where it would begin; for training, all settings are checked."""
    verb = words[0]
    if verb not in VERBS and verb == "serve":
        pytest.skip("there is no serve yet")
    command = get_command(build(words)).commands[verb]  # type: ignore[attr-defined]
    given = command.make_context(verb, words[1:]).params
    if verb == "train":
        check_training(given["data"], {name: value for name, value in given.items() if value is not None})


def check_training(data: list[str], given: dict[str, Any]) -> None:
    model, spread = given["model"], given["spread"]
    owners = (load(LEARNERS, "model", model), load(SPREADS, "spread", spread))
    kinds = [*(owner.Settings for owner in owners), TrainingSettings, ReadingSettings]
    settings = {n: v for n, v in given.items() if v != [] and any(n in kind.model_fields for kind in kinds)}
    call = Call(tuple(data), str(given["out"]), model, spread, settings)
    job = job_for(model, settings, Resources(2, 1 << 30), spread=spread, call=call)
    load(SPREADS, "spread", spread)().check(job)


@pytest.mark.parametrize(("name", "words"), [*commands()], ids=lambda value: str(value)[:40])
def test_our_command_line_takes_what_examples_ask_for(name: str, words: list[str]) -> None:
    parse(words)


def test_a_flag_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["train", "data", "--out", "run", "--spread", "allreduce", "--machines", "2"])
    with pytest.raises(UsageError, match="several machines need an address"):
        parse(["train", "data", "--out", "run", "--spread", "allreduce", "--nodes", "2"])


def test_the_sbatch_script_starts_a_crew_and_asks_for_another_job_when_interrupted(tmp_path: Path) -> None:
    """With stand-ins for SLURM's programs: srun notes what it is to run, and ends as if interrupted."""
    stand_ins = {
        "scontrol": 'if [ "$1" = show ]; then printf "node1\\nnode2\\n"; else echo "$@" >> requeued; fi',
        "srun": 'if [ "$1" = --nodes ]; then echo "10.0.0.7 127.0.0.1"; else echo "$@" > ran; exit 5; fi',
    }
    for name, script in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"JOB_NODELIST": "node[1-2]", "NNODES": "2", "CPUS_PER_TASK": "8", "JOB_ID": "77"}
    done = subprocess.run(
        ["bash", DEPLOY / "slurm" / "crew.sbatch", "data/reviews", "runs/crew", "--model", "lstm"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **{f"SLURM_{n}": v for n, v in slurm.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert (tmp_path / "requeued").read_text() == "requeue 77\n"
    program, *words = shlex.split((tmp_path / "ran").read_text())
    assert program == "manyhands"
    assert words[:2] == ["train", "data/reviews"]
    assert words[-2:] == ["--model", "lstm"]
    assert ("--rendezvous", "10.0.0.7:29400") in pairwise(words)
    parse(words)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What ``train`` is called with by the container, instead of a training."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(
        sagemaker, "run", lambda data, out, **rest: calls.append({"data": [data], "out": out, **rest})
    )
    monkeypatch.setattr(sagemaker, "_wait_for_name", lambda host: None)
    return calls


def test_the_crew_of_kubernetes_is_one(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    service, job = manifests("crew")
    (container,) = containers(job)
    assert container["args"] == ["train"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    (tmp_path / "input" / "data" / "train").mkdir(parents=True)
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"/opt/ml/input/data/train", "/opt/ml/model", "/opt/ml/checkpoints"}
    sagemaker.train(sagemaker.Container(tmp_path, variables), Silent())
    (call,) = asked
    assert (call["nodes"], call["workers"], call["spread"]) == ("2", 1, "allreduce")
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    names = [f"{job['metadata']['name']}-{n}.{service['metadata']['name']}" for n in range(2)]
    assert json.loads(variables["SM_HOSTS"]) == names
    assert call["rendezvous"] == f"{names[0]}:29400"
    check_training(call["data"], call)


def test_the_training_job_is_one_that_sagemaker_and_train_understand(
    tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    job = json.loads((DEPLOY / "sagemaker" / "training-job.json").read_text())
    validate("sagemaker", "CreateTrainingJob", job)
    (tmp_path / "input" / "data" / job["InputDataConfig"][0]["ChannelName"]).mkdir(parents=True)
    variables = {"SM_HPS": json.dumps(job["HyperParameters"])}
    sagemaker.train(sagemaker.Container(tmp_path, variables), Silent())
    check_training(asked[0]["data"], asked[0])
    scores = {"valid": [{"accuracy": 0.5}], "test": {"accuracy": 0.75}}
    said = " ".join(["epoch=1; train:loss=0.25;", *sagemaker.metric_lines(scores)])
    metrics = {m["Name"]: m["Regex"] for m in job["AlgorithmSpecification"]["MetricDefinitions"]}
    found = {name: float(re.findall(regex, said)[0]) for name, regex in metrics.items()}
    assert found == {"train:loss": 0.25, "validation:accuracy": 0.5, "test:accuracy": 0.75}


def validate(service: str, operation: str, request: dict[str, Any]) -> None:
    """By what AWS's own library knows of a request."""
    session = pytest.importorskip("botocore.session").get_session()
    from botocore.validate import ParamValidator

    shape = session.get_service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()


def test_emr_understands_its_steps() -> None:
    """The command line of AWS takes them in this flat form, and sends them in another one."""
    sent = [
        {
            "Name": step["Name"],
            "ActionOnFailure": step["ActionOnFailure"],
            "HadoopJarStep": {"Jar": step["Jar"], "Args": step["Args"]},
        }
        for step in steps()
    ]
    validate("emr", "AddJobFlowSteps", {"JobFlowId": "j-1", "Steps": sent})
    assert {step["Type"] for step in steps()} == {"CUSTOM_JAR"}


def test_scripts_pass_shellcheck() -> None:
    check("shellcheck", *DEPLOY.glob("*/*.sh"), *DEPLOY.glob("*/*.sbatch"))


def test_manifests_are_valid() -> None:
    check("yamllint", "--strict", "--config-data", LINT, DEPLOY)
    import kubernetes_validate

    for name in OURS:
        for part in manifests(name):
            kubernetes_validate.validate(part, kubernetes_validate.latest_version(), strict=True)


def test_the_service_is_asked_whether_it_is_ready() -> None:
    deployment, service = manifests("serve")
    (container,) = containers(deployment)
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    assert deployment["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    token = container["args"][container["args"].index("--token-file") + 1]
    assert Path(token).parent == Path(mounts["token"])


def test_the_dockerfile() -> None:
    """It is well-formed, and names only what there is; ``bench/container.py`` runs its steps."""
    check("hadolint", "Dockerfile")
    text = (ROOT / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"python:${PYTHON}-slim"}
    (program,) = json.loads(re.search(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[1])  # type: ignore[index]
    assert program in project["scripts"]
    for extras in re.findall(r"EXTRAS=([a-z0-9,]+)", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in names.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in ignored
