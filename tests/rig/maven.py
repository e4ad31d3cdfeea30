"""A Java whose Ivy asks a Maven repository that is a directory: what tests of fetched jars put there, take away and change."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

_JAVA = """#!{python} -IS
import pathlib, re, shutil, sys, time

home, arguments = pathlib.Path({home!r}), sys.argv[1:]
if arguments == ["-version"]:
    sys.exit('openjdk version "{version}"')
with (home / "runs").open("a") as runs:
    runs.write("run\\n")
time.sleep({seconds})
if (home / "is_down").exists():
    sys.exit("ERROR: Server access error at url https://repository/x.pom (java.net.ConnectException: Connection refused)")
module = pathlib.Path(arguments[arguments.index("-ivy") + 1]).read_text("utf-8")
group, name, version = re.search('org="(.*?)" name="(.*?)" rev="(.*?)"', module).groups()
wanted = [group + "/" + name + "-" + version + "." + ext for ext in re.findall('ext="(.*?)"', module)]
lacking = [each for each in wanted if not (home / "repository" / each).exists()]
if lacking:
    sys.exit("\\n".join("CLIENT ERROR: Not Found url=https://repository/" + each for each in [*lacking, "x/" + name + "-sources.jar"]))
for each in wanted:
    shutil.copy(home / "repository" / each, pathlib.Path(arguments[-1]).parent)
"""


class FakeMaven:
    """What stands in `home`, which has to be JAVA_HOME. `version` and `seconds` are those of its Java when it is installed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "bin").mkdir(parents=True)

    def install(self, version: str = "17.0.1", seconds: float = 0.0) -> None:
        """Put the Java there, or another one."""
        self.java.write_text(_JAVA.format(python=sys.executable, home=str(self._home), version=version, seconds=seconds), "utf-8")
        self.java.chmod(0o755)

    @property
    def java(self) -> Path:
        """Its launcher."""
        return self._home / "bin" / "java"

    @property
    def runs(self) -> int:
        """How often Ivy was run."""
        log = self._home / "runs"
        return len(log.read_text("utf-8").splitlines()) if log.exists() else 0

    def publish(self, coordinates: str, content: bytes, *checksums: str) -> None:
        """Have a jar in the repository, beside it these checksums of it."""
        jar = self._jar(coordinates)
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(content)
        for checksum in checksums:
            jar.with_name(f"{jar.name}.{checksum}").write_text(hashlib.new(checksum, content).hexdigest(), "ascii")

    def forge(self, coordinates: str, content: bytes) -> None:
        """Change a jar, its checksums stay."""
        self._jar(coordinates).write_bytes(content)

    def go_down(self) -> None:
        """From now on no fetch succeeds."""
        (self._home / "is_down").touch()

    def come_up(self) -> None:
        """The end of that."""
        (self._home / "is_down").unlink()

    def _jar(self, coordinates: str) -> Path:
        group, artifact, version = coordinates.split(":")
        return self._home / "repository" / group / f"{artifact}-{version}.jar"
