"""`run` of pods that are there already with other resources, or with a class that nobody knows."""

import json

from tests.support.command_bench import PINNED, POD, CommandBench, with_agent

from nodewright.documents.output.terminal import ERROR, NO, YES


@with_agent()
async def test_a_pod_that_is_there_is_resized(commands: CommandBench) -> None:
    await commands.says("run", "-f", commands.file(POD))
    assert await commands.says("run", "-f", commands.file(POD.replace("500m", "750m"))) == (
        YES,
        "pod/web resized\n",
    )
    (record,) = commands.bench.loop.state.pods.values()
    assert str(record.pod.spec.containers[0].resources.requests["cpu"]) == "750m"
    assert "update_container" in commands.bench.runtime_operations()[-1]
    code, text = await commands.says("run", "-f", commands.file(POD.replace("500m", "7500m")))
    refusal = "node didn't have enough allocatable resources: cpu, requested: 7500, allocatable: 7000"
    assert (code, text) == (ERROR, f'Error from agent (Forbidden): pods "web" is forbidden: {refusal}\n')
    await commands.says("run", "-f", commands.file(PINNED))
    code, text = await commands.says("run", "-f", commands.file(POD.replace("500m", "6")))
    assert code == NO
    assert text.startswith("pod/web not resized: Deferred: ")
    result = json.loads((await commands.says("get", "pod", "web", "-o", "json"))[1])
    assert result["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "6"
    (status,) = result["status"]["containerStatuses"]
    assert status["allocatedResources"]["cpu"] == "750m"
    code, text = await commands.says("run", "-f", commands.file(POD.replace("image: i", "image: j")))
    assert (code, text) == (ERROR, 'Error from agent (AlreadyExists): pods "web" already exists\n')


@with_agent()
async def test_a_runtime_class_has_to_be_known(commands: CommandBench) -> None:
    written = POD.replace("spec:", "spec:\n  runtimeClassName: small")
    code, text = await commands.says("run", "-f", commands.file(written))
    assert (code, text.splitlines()[-1]) == (
        ERROR,
        'Error from agent (Forbidden): pods "web" is forbidden: pod rejected: RuntimeClass "small" not found',
    )
