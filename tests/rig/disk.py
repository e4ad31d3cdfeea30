"""Small file systems that a test can fill, or take the power from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LOSETUP = "/usr/sbin/losetup"


class Remounted:
    """An ext4 at `place` that can be mounted again under another device number. Skips the test where that is not allowed."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "place"
        self.place.mkdir()
        self._image = directory / "image"
        self._devices: list[str] = []
        make_disk(self._image, 64 * 2**20)
        self._mount()

    def again(self) -> None:
        """Another loop device, while the first one is kept busy."""
        before = self.place.stat().st_dev
        subprocess.run(["umount", str(self.place)], check=True)
        self._attach()
        self._mount()
        if self.place.stat().st_dev == before:
            pytest.skip("the kernel gave the same device number again")

    def close(self) -> None:
        """Unmount it, give the loop devices back."""
        subprocess.run(["umount", "-l", str(self.place)], check=False, stderr=subprocess.DEVNULL)
        for device in self._devices:
            subprocess.run([LOSETUP, "-d", device], check=False, stderr=subprocess.DEVNULL)

    def _attach(self) -> str:
        done = subprocess.run([LOSETUP, "-f", "--show", str(self._image)], check=False, capture_output=True, text=True)
        if done.returncode:
            self.close()
            pytest.skip("loop devices cannot be used here")
        self._devices.append(done.stdout.strip())
        return self._devices[-1]

    def _mount(self) -> None:
        if subprocess.run(["mount", self._attach(), str(self.place)], check=False, capture_output=True).returncode:
            self.close()
            pytest.skip("mounting is not allowed here")


@contextmanager
def remountable(directory: Path) -> Iterator[Remounted]:
    """See `Remounted`."""
    disk = Remounted(directory)
    try:
        yield disk
    finally:
        disk.close()


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[Path]:
    """A private tmpfs of `size` (as mount spells it) below `directory`. Skips the test where mounting is not allowed."""
    mount = directory / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def make_disk(image: Path, size_bytes: int = 16 * 2**20) -> None:
    """An empty ext4 in a file."""
    image.touch()
    os.truncate(image, size_bytes)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)


@contextmanager
def ext4(image: Path, mount: Path) -> Iterator[None]:
    """`image` at `mount`, which is there. A copy of the image is what a power cut leaves. Skips the test where mounting is not allowed."""
    command = ["mount", "-o", "loop", str(image), str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield
    subprocess.run(["umount", str(mount)], check=True)
