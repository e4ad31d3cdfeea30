"""Registries of the parts that a definition may name: those that come with the agent, and those of installed packages.

A package brings a part by an entry point, in the group of its kind: `[project.entry-points."copycat_agent.transforms"]` with `shout =
"copycat_shout:SHOUT"`. Packages are looked up only for a name that the agent does not have itself, so they cost a start nothing (a look-up
takes 2 to 7 ms, more on a cold disk), their code runs only if it is asked for, and their parts never replace built-in ones. An unusable
part counts as missing, and `find` says why: it harms nobody who does not use it.
"""

from __future__ import annotations

import functools
import importlib
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args

from copycat_agent.errors import CopycatError, FatalError

__all__ = [
    "FAULT",
    "MissingPartError",
    "Provider",
    "ProviderGuard",
    "Registry",
    "UnusablePart",
    "blamed",
    "described",
    "wrong_kind",
    "wrong_type_name",
]

K = TypeVar("K")
FAULT = "this is a fault of that package: tell whoever maintains it"
"""Hint for errors raised by a package's part."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Names that a part can have; entry points with other names are ignored."""

Check = Callable[[str, K], str]
"""Returns what is wrong with the part that a package brings under this name, "" for nothing. May raise anything."""


class Provider(NamedTuple):
    """The package that a part comes from; `text` is its name in errors."""

    package: str
    version: str

    @property
    def text(self) -> str:
        """The package's name in errors, as in `package copycat-shout 1.0`."""
        return f"package {self.package} {self.version}".rstrip()


class ProviderGuard(NamedTuple):
    """Wraps the functions of a package's part; `whose` names it."""

    whose: str

    def __call__(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `call`, but raising a `FatalError` that names the part instead of anything that is not a `CopycatError`."""

        @functools.wraps(call)
        def fenced(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the function takes and gives
            try:
                return call(*args, **named)
            except (CopycatError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - another package's code raises anything
                words = f"{self.whose}: {described(error)}"
            raise FatalError(words, FAULT)  # outside the except: the cause may hold data

        return fenced


class UnusablePart(NamedTuple):
    """A part that a package declares but cannot provide: `why`, in words that name the package."""

    why: str
    hint: str


class MissingPartError(FatalError, KeyError):
    """A definition names a part that this process does not have. A KeyError too, so that a registry is a Mapping like any other."""

    __str__ = FatalError.__str__


class BuiltInParts(Mapping[str, K], Generic[K]):
    """The built-in parts of one kind, by name, each imported on first use: a process needs only some of them. Thread-safe."""

    def __init__(self, parts: Mapping[str, K | str]) -> None:
        """A text locates a part, as an entry point does: `copycat_agent.formats.records.csv_format:CSV`."""
        self._parts = dict(parts)

    def __getitem__(self, name: str) -> K:
        """Returns the part. Raises KeyError for a name that is none of them."""
        part = self._parts[name]
        if isinstance(part, str):
            module, _, attribute = part.partition(":")
            part = self._parts[name] = cast("K", getattr(importlib.import_module(module), attribute))
        return part

    def __contains__(self, name: object) -> bool:
        """Returns whether there is a part of this name. Imports nothing."""
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class Registry(Mapping[str, K], Generic[K]):
    """The parts of one kind, by name. Thread-safe. Iterates over built-in parts first, then over usable ones of packages."""

    def __init__(self, noun: str, built_in: Mapping[str, K | str], check: Check[K], fenced: Callable[[K, ProviderGuard], K]) -> None:
        """`noun` is the word for a part in messages, and its plural the end of the group's name: `transform`, `copycat_agent.transforms`.

        `built_in` is as for `BuiltInParts`. `fenced` returns the part of a package with its functions wrapped.
        """
        self.noun = noun
        self.group = f"copycat_agent.{noun}s"
        self.built_in = BuiltInParts(built_in)
        self._check = check
        self._fenced = fenced
        self._found: dict[str, tuple[K, Provider]] = {}
        self._looking = threading.RLock()  # an imported module may itself look for parts

    def __getitem__(self, name: str) -> K:
        """Returns the part. Raises `MissingPartError`, a KeyError, for an unknown name, or one whose package is unusable."""
        if name in self.built_in:
            return self.built_in[name]
        found = self.find(name)
        if found is None:
            raise MissingPartError(
                f"unknown {self.noun} {name!r:.80}", "a package that brings it has to be installed where the agent's tasks run"
            )
        if isinstance(found, UnusablePart):
            raise MissingPartError(found.why, found.hint)
        return found

    def __iter__(self) -> Iterator[str]:
        names = [name for name in self._offered() if name not in self.built_in]
        return iter([*self.built_in, *(name for name in sorted(names) if not isinstance(self.find(name), UnusablePart))])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find(self, name: str) -> K | UnusablePart | None:
        """Returns the part of this name, or why it is unusable, or None if there is none."""
        if name in self.built_in:
            return self.built_in[name]
        if not _NAME.fullmatch(name):
            return None
        if name not in self._found:
            with self._looking:
                trouble = self._look_for(name)
            if name not in self._found:
                return trouble
        return self._found[name][0]

    def origin(self, name: str) -> Provider | None:
        """Returns the package of a part that was found; None for a built-in one."""
        return self._found[name][1] if name in self._found else None

    def forget(self) -> None:
        """Forgets the parts of packages, so that they are looked up again."""
        origins = {origin for _, origin in self._found.values()}
        self._found.clear()
        for module in [module for module, origin in _MODULES.items() if origin in origins]:
            del _MODULES[module]

    def names(self) -> list[str]:
        """Returns every name that may be written, including those of unusable packages. Imports nothing."""
        return list(dict.fromkeys([*self.built_in, *sorted(self._offered())]))

    def _offered(self) -> set[str]:
        return {point.name for point in metadata.entry_points(group=self.group) if _NAME.fullmatch(point.name)}

    def _look_for(self, name: str) -> UnusablePart | None:
        """Puts the part into `_found`, or returns why not. A failure is not remembered: a person may have repaired it by the next time."""
        points = {(point.value, _origin(point)): point for point in metadata.entry_points(group=self.group, name=name)}
        if not points:
            return None
        if len(points) > 1:
            packages = " and ".join(sorted(origin.text for _, origin in points))
            return UnusablePart(f"{self.noun} {name!r} is brought by more than one package: {packages}", "remove all but one of them")
        ((_, origin), point) = next(iter(points.items()))
        try:
            part = point.load()
            wrong = self._check(name, part)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the package's own: it must harm nobody who does not use it
            wrong = f"it cannot be loaded: {described(error)}"
        if wrong:
            return UnusablePart(
                f"{self.noun} {name!r} of {origin.text}: {wrong}", "repair or replace the package, then start the agent again"
            )
        _MODULES[point.module] = origin
        self._found[name] = self._fenced(part, ProviderGuard(f"{self.noun} {name!r} of {origin.text}")), origin
        return None


_MODULES: dict[str, Provider] = {}
"""Modules that parts came from, for `blamed`."""


def _origin(point: metadata.EntryPoint) -> Provider:
    return Provider(point.dist.name, point.dist.version) if point.dist is not None else Provider(point.module, "")


def described(error: BaseException) -> str:
    """Returns type and place of another package's exception. Its text only if Python worded it: any other may hold data or secrets."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own[1:] else ""
    if isinstance(error, SyntaxError):
        return f"SyntaxError at {Path(error.filename or '').name}:{error.lineno}"
    is_worded = isinstance(error, ImportError) or (isinstance(error, AttributeError) and not place)
    return f"{type(error).__name__}{f': {error}' if is_worded else ''}{place}"


def blamed(trace: TracebackType | None) -> Provider | None:
    """Returns the package whose part raised, or called what raised; None if no code of a package was running."""
    found = None
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        found = next((origin for name, origin in _MODULES.items() if name.partition(".")[0] == package), found)
        trace = trace.tb_next
    return found


def wrong_kind(part: object, kind: type, options: type) -> str:
    """Returns why `part` is not a `kind` with options derived from `options`, "" if it is. Every check begins with it."""
    if not isinstance(part, kind):
        return f"it is a {type(part).__name__}, not a {kind.__name__}"
    model = getattr(part, "options", None)
    if not (isinstance(model, type) and issubclass(model, options)):
        return f"its options are not a class derived from {options.__name__}"
    return ""


def wrong_type_name(name: str, model: Any) -> str:  # noqa: ANN401 - a class of options, which this layer does not know
    """Returns why options cannot be chosen by their `type`, "" if they can: it must be the name, and they need a JSON schema."""
    field = model.model_fields.get("type")
    if field is None or get_args(field.annotation) != (name,):
        return f"the type of its options is not Literal[{name!r}]"
    model.model_json_schema()
    return ""
