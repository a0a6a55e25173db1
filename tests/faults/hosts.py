"""Several hosts on one machine: network namespaces, joined by a bridge in a namespace of its own.

Each has an address, a name and a /tmp/ray; the rest of the disk is what all of them share. The machine's
own network is not touched, so tests of several processes do not meet. It needs Linux, root and `ip`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PORT = 6379
TOOLS = ("ip", "unshare", "mount", "hostname")
# Ray makes a token where none is, and then asks for it; on real machines it is the same on all.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}


def why_not() -> str | None:
    """Why there can be no hosts here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid():
        return f"hosts need {', '.join(missing) or 'root'}"
    name = f"recollect-{os.getpid()}-try"
    try:
        _switch(name)
    except OSError as error:
        return f"hosts need network namespaces: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


@dataclass(frozen=True)
class Host:
    """One of them."""

    name: str
    space: str
    switch: str
    address: str
    home: Path
    """What it has for itself: its /tmp/ray, and what its Ray said."""

    def command(self, *arguments: str, before: str = "true") -> list[str]:
        """A command that runs there; `before` is a line of shell that is run first, as mount is."""
        script = f'hostname {self.name} && mount --bind {self.home} /tmp/ray && {before} && exec "$@"'
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", "sh", "-ec", script, "sh", *arguments]

    @property
    def cluster(self) -> str:
        """Where the cluster answers whose head this is."""
        return f"{self.address}:{PORT}"

    def head(self, **environment: str) -> None:
        """Begin a cluster."""
        self._ray("--head", "--port", str(PORT), "--include-dashboard", "false", **environment)

    def join(self, head: "Host", before: str = "true", **environment: str) -> None:
        """Become one of its machines."""
        self._ray("--address", head.cluster, before=before, **environment)

    def _ray(self, *arguments: str, before: str = "true", **environment: str) -> None:
        """With room for one run."""
        flags = ["--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats"]
        flags += ["--node-ip-address", self.address]
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, *flags]
        with (self.home / "said").open("ab") as said:
            env = {**os.environ, **TOKEN, **environment}
            command = self.command(*start, before=before)
            done = subprocess.run(command, stdout=said, stderr=said, timeout=120, env=env)
        assert done.returncode == 0, (self.home / "said").read_text()

    def processes(self) -> list[int]:
        """Everything that runs there."""
        found = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True)
        return [int(number) for number in found.stdout.split()]

    def kill(self) -> None:
        """All at once, as when its power goes."""
        while alive := self.processes():
            for process in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    def cut(self) -> None:
        """Take its cable out."""
        ip("-n", self.switch, "link", "set", f"to-{self.name}", "down")

    def mend(self) -> None:
        """Put it back."""
        ip("-n", self.switch, "link", "set", f"to-{self.name}", "up")


def ip(*arguments: str) -> None:
    """Set something up; what went wrong is in the error."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextlib.contextmanager
def hosts(folder: Path, names: str = "abc") -> Iterator[list[Host]]:
    """One for each letter, gone afterwards with all that runs there."""
    mark = f"recollect-{uuid.uuid4().hex[:8]}"
    switch, made = f"{mark}-switch", list[Host]()
    Path("/tmp/ray").mkdir(exist_ok=True)
    try:
        _switch(switch)
        for number, name in enumerate(names, 1):
            home = folder / f"host-{name}"
            home.mkdir()
            made.append(Host(name, f"{mark}-{name}", switch, f"10.0.0.{number}", home))
            _join(made[-1])
        yield made
    finally:
        for host in made:
            host.kill()
        for space in [switch, *(host.space for host in made)]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


def _switch(name: str) -> None:
    """What all are plugged into."""
    ip("netns", "add", name)
    ip("-n", name, "link", "add", "bridge", "type", "bridge")
    ip("-n", name, "link", "set", "bridge", "up")


def _join(host: Host) -> None:
    ip("netns", "add", host.space)
    inner = ("type", "veth", "peer", "name", "eth0", "netns", host.space)
    ip("-n", host.switch, "link", "add", f"to-{host.name}", *inner)
    ip("-n", host.switch, "link", "set", f"to-{host.name}", "master", "bridge", "up")
    ip("-n", host.space, "address", "add", f"{host.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", host.space, "link", "set", device, "up")
    # Ray asks which address it has by way of one that lies outside.
    ip("-n", host.space, "route", "add", "default", "dev", "eth0")
