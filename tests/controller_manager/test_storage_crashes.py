"""The binder and the provisioner are killed in the middle of their work, again and again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.kube.client import Client
from hekla.kube.connection import config
from tests.apiserver_process import ApiServerProcess
from tests.controller_manager.live import controllers, eventually, new_namespace
from tests.controller_manager.test_storage import claim, volume

CLAIMS, VOLUMES = PERSISTENT_VOLUME_CLAIM.untyped, PERSISTENT_VOLUME.untyped
EACH = 40


async def test_every_claim_has_a_volume_of_its_own_in_the_end(tmp_path: Path) -> None:
    flag = f"--storage-dir={tmp_path / 'volumes'}"
    with ApiServerProcess.started(tmp_path / "server") as server:
        async with Client(config.load(str(server.internal_kubeconfig))) as client:
            namespace = await new_namespace(client)
            for number in range(EACH):
                await client.create(VOLUMES, volume(f"manual-{number}", storageClassName="manual"))
                await client.create(
                    CLAIMS, claim(f"static-{number}", storageClassName="manual"), namespace
                )
                made = claim(f"dynamic-{number}", storageClassName="standard")
                made["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "node-a"}
                await client.create(CLAIMS, made, namespace)

            async def bound(goal: int) -> None:
                async def look() -> bool:
                    found = (await client.list(CLAIMS, namespace)).items
                    return sum(one["status"].get("phase") == "Bound" for one in found) >= goal

                await eventually(look)

            for goal in (1, EACH):
                with controllers(server, flag) as process:
                    await bound(goal)
                    process.kill()
                    process.wait(60)
            with controllers(server, flag):
                await bound(2 * EACH)

            claims = (await client.list(CLAIMS, namespace)).items
            volumes = {one["metadata"]["name"]: one for one in (await client.list(VOLUMES)).items}
            assert max(Counter(one["spec"]["volumeName"] for one in claims).values()) == 1
            for one in claims:
                there = volumes[one["spec"]["volumeName"]]
                assert there["spec"]["claimRef"]["uid"] == one["metadata"]["uid"]
            assert len(volumes) == 2 * EACH
            assert len(list((tmp_path / "volumes").glob("pvc-*"))) == EACH
