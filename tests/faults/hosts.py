"""Several hosts on one machine: network namespaces, joined by a bridge in a separate namespace.

Each has an address, a name and a /tmp/ray; they share the rest of the disk. The network of the machine
itself is not touched, so tests in parallel do not disturb each other. It needs Linux, root and `ip`.
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
# Ray creates a token where none exists, and then requires it; on real machines all have the same.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}


def why_not() -> str | None:
    """Why this machine cannot have such hosts, or None."""
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
    """One host."""

    name: str
    space: str
    switch: str
    address: str
    home: Path
    """Its private folder: its /tmp/ray, and the output of its Ray."""

    def command(self, *arguments: str, before: str = "true") -> list[str]:
        """A command that executes on the host; `before` is a shell command that is executed first."""
        script = f'hostname {self.name} && mount --bind {self.home} /tmp/ray && {before} && exec "$@"'
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", "sh", "-ec", script, "sh", *arguments]

    @property
    def cluster(self) -> str:
        """The address of the cluster whose head this is."""
        return f"{self.address}:{PORT}"

    def head(self, **environment: str) -> None:
        """Start a cluster."""
        self._ray("--head", "--port", str(PORT), "--include-dashboard", "false", **environment)

    def join(self, head: "Host", before: str = "true", **environment: str) -> None:
        """Join a cluster."""
        self._ray("--address", head.cluster, before=before, **environment)

    def _ray(self, *arguments: str, before: str = "true", **environment: str) -> None:
        """Start Ray with room for one run."""
        flags = ["--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats"]
        flags += ["--node-ip-address", self.address]
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, *flags]
        with (self.home / "output").open("ab") as output:
            env = {**os.environ, **TOKEN, **environment}
            command = self.command(*start, before=before)
            done = subprocess.run(command, stdout=output, stderr=output, timeout=120, env=env)
        assert done.returncode == 0, (self.home / "output").read_text()

    def processes(self) -> list[int]:
        """The ids of all processes on the host."""
        listing = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True)
        return [int(number) for number in listing.stdout.split()]

    def kill(self) -> None:
        """Kill all its processes at once, as a power failure does."""
        while alive := self.processes():
            for process in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    def cut(self) -> None:
        """Disconnect its network."""
        ip("-n", self.switch, "link", "set", f"to-{self.name}", "down")

    def mend(self) -> None:
        """Connect its network again."""
        ip("-n", self.switch, "link", "set", f"to-{self.name}", "up")


def ip(*arguments: str) -> None:
    """Execute an `ip` command; its output is in the error."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextlib.contextmanager
def hosts(folder: Path, names: str = "abc") -> Iterator[list[Host]]:
    """One host for each letter; removed afterwards with all its processes."""
    mark = f"recollect-{uuid.uuid4().hex[:8]}"
    switch, machines = f"{mark}-switch", list[Host]()
    Path("/tmp/ray").mkdir(exist_ok=True)
    try:
        _switch(switch)
        for number, name in enumerate(names, 1):
            home = folder / f"host-{name}"
            home.mkdir()
            machines.append(Host(name, f"{mark}-{name}", switch, f"10.0.0.{number}", home))
            _plug_in(machines[-1])
        yield machines
    finally:
        for host in machines:
            host.kill()
        for space in [switch, *(host.space for host in machines)]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


def _switch(name: str) -> None:
    """Create the bridge that connects all hosts."""
    ip("netns", "add", name)
    ip("-n", name, "link", "add", "bridge", "type", "bridge")
    ip("-n", name, "link", "set", "bridge", "up")


def _plug_in(host: Host) -> None:
    ip("netns", "add", host.space)
    inner = ("type", "veth", "peer", "name", "eth0", "netns", host.space)
    ip("-n", host.switch, "link", "add", f"to-{host.name}", *inner)
    ip("-n", host.switch, "link", "set", f"to-{host.name}", "master", "bridge", "up")
    ip("-n", host.space, "address", "add", f"{host.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", host.space, "link", "set", device, "up")
    # Ray finds its address by a route to the outside, so there must be one.
    ip("-n", host.space, "route", "add", "default", "dev", "eth0")
