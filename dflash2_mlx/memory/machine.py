"""The only probe of the device: what computes here, how much memory it has, and what is missing.

Imports MLX when asked, never on import; a probe that fails is told in the result, not raised. Knows no models.
"""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_OLDEST_MACOS = 14
_MAC, _LINUX = "Darwin", "Linux"
_PACKAGES = ("mlx", "mlx-metal", "mlx-lm")
_LONGEST_ERROR = 240
_NO_DEVICE = "No Metal device"


@dataclass(frozen=True, slots=True)
class Metal:
    """The GPU as MLX reports it. working_set_bytes: what Metal recommends to keep in use at most."""

    name: str
    working_set_bytes: int
    max_buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """device: `gpu` on Metal, else `cpu`. name: the GPU as MLX reports it, or the backend.

    chip: the processor's own name; family: `M1` to `M5` and later, "" for other processors. os_name: with its version.
    architecture: the one of this Python. rosetta: an x86-64 Python on Apple silicon. mlx_error: why MLX cannot be
    loaded. versions: of mlx, mlx-metal and mlx-lm, None = not installed. compiler: g++, which MLX needs on Linux.
    """

    device: str
    name: str
    system: str
    os_name: str
    os_version: str
    chip: str
    family: str
    architecture: str
    python_version: str
    rosetta: bool
    mlx_error: str | None
    versions: dict[str, str | None]
    memory_bytes: int | None
    working_set_bytes: int | None
    max_buffer_bytes: int | None
    compiler: str | None
    cache_folder: str
    free_bytes: int | None

    @property
    def limit_bytes(self) -> int | None:
        """What a pair may take: Metal's recommended working set, or the whole memory where the CPU computes.

        None on a Mac whose MLX cannot be loaded, since only Metal tells the number.
        """
        if self.system == _MAC and self.mlx_error:
            return None
        return self.working_set_bytes or self.memory_bytes

    @property
    def obstacles(self) -> tuple[str, ...]:
        """What makes running impossible here, each with what to do."""
        unsupported = _unsupported(self)
        if unsupported:
            return (unsupported,)
        found = []
        if self.mlx_error and _NO_DEVICE in self.mlx_error:  # a Mac's MLX calls Metal available without asking
            found.append(
                f"MLX finds no Metal device here ({self.mlx_error}): a virtual machine, or a login without the GPU? "
                "Run it on the Mac itself, logged in as a user."
            )
        elif self.mlx_error:
            wanted = "mlx mlx-metal" if self.system == _MAC else '"mlx[cpu]"'
            found.append(
                f"MLX cannot be loaded: {self.mlx_error}. "
                f"Install it again: python -m pip install --force-reinstall {wanted}"
            )
        if self.versions.get("mlx-lm") is None:
            found.append("mlx-lm is not installed. Install it: python -m pip install mlx-lm")
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What works, but less well than it could."""
        found = []
        mlx, metal = self.versions.get("mlx"), self.versions.get("mlx-metal")
        if self.system == _MAC and self.device == "cpu" and not self.obstacles:
            found.append(
                "MLX finds no Metal device (a virtual machine?): all is computed on the CPU, correct and slow."
            )
        if mlx and metal and mlx != metal:
            found.append(
                f"mlx {mlx} and mlx-metal {metal} belong together: python -m pip install --upgrade mlx mlx-metal"
            )
        if self.system == _LINUX:
            found.append("MLX computes on the CPU here: good for trying and testing. Speed needs Apple silicon.")
            if self.compiler is None:
                found.append(
                    "there is no g++, with which MLX compiles functions while it runs: they run uncompiled, slower and "
                    "correct. Install it, say: apt-get install g++"
                )
        return tuple(found)


class System:
    """The calls that ask the machine; tests replace them."""

    def kind(self) -> str:
        """`Darwin`, `Linux`, `Windows`, ..."""
        return platform.system()

    def architecture(self) -> str:
        """Of this Python: `arm64`, `x86_64`, ..."""
        return platform.machine()

    def python_version(self) -> str:
        """Of this Python."""
        return platform.python_version()

    def os_version(self) -> str:
        """macOS' own version where it is macOS; a Python built long ago reports 10.16 by itself."""
        if self.kind() == _MAC:
            return self.sysctl("kern.osproductversion") or platform.mac_ver()[0]
        return platform.release()

    def sysctl(self, name: str) -> str | None:
        """A value of the kernel's, None where there is none by this name."""
        try:
            done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None

    def chip(self) -> str:
        """The processor's name, the architecture where it tells none."""
        if self.kind() == _MAC:
            return self.sysctl("machdep.cpu.brand_string") or self.architecture()
        try:
            found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        except OSError:
            found = None
        return found.group(1).strip() if found else self.architecture()

    def metal(self) -> Metal | None:
        """The GPU, None where MLX computes on the CPU. Raises: ImportError and others where MLX cannot be loaded."""
        import mlx.core as mx

        if not mx.metal.is_available():
            return None
        info = mx.device_info()
        return Metal(
            str(info.get("device_name", "Apple GPU")),
            int(info["max_recommended_working_set_size"]),
            int(info["max_buffer_length"]),
        )

    def installed(self, package: str) -> str | None:
        """The version of an installed package."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(package)
        except PackageNotFoundError:
            return None

    def memory_bytes(self) -> int | None:
        """All memory of the machine."""
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None

    def compiler(self) -> str | None:
        """The path of g++."""
        return shutil.which("g++")

    def cache_folder(self) -> Path:
        """Where downloaded models are kept."""
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE).expanduser()

    def free_bytes(self, folder: Path) -> int | None:
        """Room on the disk that holds `folder`, or will hold it."""
        existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
        try:
            return shutil.disk_usage(existing).free if existing else None
        except OSError:
            return None


def probe(system: System | None = None) -> Machine:
    """What this machine is, and what MLX computes on here."""
    system = system or System()
    kind, architecture, chip = system.kind(), system.architecture(), system.chip()
    metal, error = _load_mlx(system)
    translated = "1" in (system.sysctl("sysctl.proc_translated"), system.sysctl("hw.optional.arm64"))
    family = re.match(r"Apple (M\d+)", chip)
    cache = system.cache_folder()
    return Machine(
        device="gpu" if metal else "cpu",
        name=metal.name if metal else "MLX CPU backend",
        system=kind,
        os_name="macOS" if kind == _MAC else kind,
        os_version=system.os_version(),
        chip=chip,
        family=family.group(1) if family else "",
        architecture=architecture,
        python_version=system.python_version(),
        rosetta=kind == _MAC and architecture == "x86_64" and translated,
        mlx_error=error,
        versions={package: system.installed(package) for package in _PACKAGES},
        memory_bytes=system.memory_bytes(),
        working_set_bytes=metal.working_set_bytes if metal else None,
        max_buffer_bytes=metal.max_buffer_bytes if metal else None,
        compiler=system.compiler(),
        cache_folder=str(cache),
        free_bytes=system.free_bytes(cache),
    )


def _load_mlx(system: System) -> tuple[Metal | None, str | None]:
    """The GPU, and why MLX cannot be loaded. Any failure of a foreign library is an answer here."""
    try:
        return system.metal(), None
    except Exception as error:
        message = " ".join(str(error).split()) or type(error).__name__
        return None, message if len(message) <= _LONGEST_ERROR else message[:_LONGEST_ERROR] + " ..."


def _unsupported(machine: Machine) -> str | None:
    """Why MLX has no build for this machine, and what is supported."""
    if machine.system not in (_MAC, _LINUX):
        return (
            f"{machine.os_name} has no MLX. It runs on macOS {_OLDEST_MACOS} or newer on Apple silicon, and on Linux "
            "(WSL 2 is one)."
        )
    if machine.system == _LINUX:
        return None
    if machine.rosetta:
        return (
            "this Python is an x86-64 program that Rosetta translates, and MLX has no build for it. Install a native "
            "(arm64) Python, from python.org or Homebrew in /opt/homebrew, and make the virtual environment with it."
        )
    if machine.architecture != "arm64":
        return (
            "this Mac has an Intel processor, and MLX has no build for it. "
            f"It needs Apple silicon (M1 or newer) with macOS {_OLDEST_MACOS} or newer, or Linux."
        )
    major = machine.os_version.split(".")[0]
    if major.isdigit() and int(major) < _OLDEST_MACOS:
        return f"macOS {machine.os_version} is too old: MLX needs macOS {_OLDEST_MACOS} or newer. Update macOS."
    return None


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    """Bytes that MLX's arrays take, that MLX keeps for later, their peak, and what the process occupies in all."""

    active_bytes: int
    cache_bytes: int
    peak_bytes: int
    resident_bytes: int | None


def memory_in_use() -> MemoryInUse:
    """The memory of this process now. Raises: ImportError where MLX cannot be loaded."""
    import mlx.core as mx

    return MemoryInUse(mx.get_active_memory(), mx.get_cache_memory(), mx.get_peak_memory(), _resident_bytes())


def _resident_bytes() -> int | None:
    """What the process occupies in memory; None where nobody tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, timeout=10)
        return int(done.stdout) * 1024
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
