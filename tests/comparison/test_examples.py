"""The example files for Kubernetes and SLURM are complete, and their options exist."""

import re
import subprocess
from pathlib import Path

import yaml

from recollect.comparison import compare
from recollect.config.command import parse

EXAMPLES = Path(__file__).parents[2] / "examples"


def compare_arguments(text: str) -> list[str]:
    """The words after `recollect compare` in a text."""
    match = re.search(r"recollect compare (.*)", text)
    assert match
    return match[1].split()


def test_kuberay_starts_a_cluster_whose_pods_share_the_runs() -> None:
    claim, job = yaml.safe_load_all((EXAMPLES / "kuberay.yaml").read_text())
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    keys = {"entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit"}
    assert set(job["spec"]) == keys | {"rayClusterSpec"}
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in (cluster["headGroupSpec"], workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,), (volume,) = pod["containers"], pod["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/shared"}]
    arguments = compare_arguments(job["spec"]["entrypoint"])
    options = parse(compare.CompareOptions, arguments, "recollect compare")
    assert options.on == "ray:127.0.0.1:6379" and options.folder == Path("/shared/runs")


def test_slurm_starts_a_cluster_and_the_study_on_it() -> None:
    script = EXAMPLES / "slurm.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    arguments = [text.strip('"') for text in compare_arguments(script.read_text())]
    assert (EXAMPLES.parent / arguments[0]).exists()
    assert arguments[-3:] == ["--on", "ray:$host:$port", "--quiet"]
