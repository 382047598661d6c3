"""`run` of pods that are there already with other resources, or with a class that nobody knows."""

import json

from tests.unit.cli.test_talking_to_agents import PINNED, POD, Town, talk

from nodewright.output.exit_codes import ERROR, NO, YES


@talk()
async def test_a_pod_that_is_there_is_resized(town: Town) -> None:
    await town.says("run", "-f", town.file(POD))
    assert await town.says("run", "-f", town.file(POD.replace("500m", "750m"))) == (YES, "pod/web resized\n")
    (record,) = town.bench.loop.state.pods.values()
    assert str(record.pod.spec.containers[0].resources.requests["cpu"]) == "750m"
    assert "update_container" in town.bench.runtime_operations()[-1]
    code, text = await town.says("run", "-f", town.file(POD.replace("500m", "7500m")))
    refusal = "node didn't have enough allocatable resources: cpu, requested: 7500, allocatable: 7000"
    assert (code, text) == (ERROR, f'Error from agent (Forbidden): pods "web" is forbidden: {refusal}\n')
    await town.says("run", "-f", town.file(PINNED))
    code, text = await town.says("run", "-f", town.file(POD.replace("500m", "6")))
    assert code == NO
    assert text.startswith("pod/web not resized: Deferred: ")
    told = json.loads((await town.says("get", "pod", "web", "-o", "json"))[1])
    assert told["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "6"
    (status,) = told["status"]["containerStatuses"]
    assert status["allocatedResources"]["cpu"] == "750m"
    code, text = await town.says("run", "-f", town.file(POD.replace("image: i", "image: j")))
    assert (code, text) == (ERROR, 'Error from agent (AlreadyExists): pods "web" already exists\n')


@talk()
async def test_a_runtime_class_has_to_be_known(town: Town) -> None:
    written = POD.replace("spec:", "spec:\n  runtimeClassName: small")
    code, text = await town.says("run", "-f", town.file(written))
    assert (code, text.splitlines()[-1]) == (
        ERROR,
        'Error from agent (Forbidden): pods "web" is forbidden: pod rejected: RuntimeClass "small" not found',
    )
