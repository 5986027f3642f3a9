"""Every annotation of a package is checked when it is used, shapes of tensors among them, in the process of the tests.

That is what jaxtyping's own hook does, too, which binds the arguments of every call and checks each of them twice: it
took half of the time of all tests. Here a call is checked once, by beartype, and only functions that speak of shapes
have a scope in which names of axes are compared. Functions that give their result bit by bit are left to jaxtyping.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source, decode_source
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, get_args, get_type_hints
from unittest.mock import patch

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError, jaxtyped

AS_JAXTYPING = BeartypeConf(violation_type=TypeCheckError)
CACHE = "shapes1"
"""names the compiled files; to be changed with what is done to the source"""


def check(package: str) -> None:
    """Check all functions and dataclasses of a package that is not imported yet."""
    assert package not in sys.modules, f"{package} is imported already, without checks"
    sys.meta_path.insert(0, _Finder(package))


def checked(found: Any) -> Any:
    """Return a function that checks its arguments and its result; a dataclass checks what it is made of."""
    if isinstance(found, type):
        if is_dataclass(found) and "__init__" in vars(found):
            found.__init__ = _checked_function(found.__init__)  # type: ignore[misc]
        return found
    return _checked_function(found)


class _Check(NamedTuple):
    call: Any
    """the function, with its arguments and its result checked"""
    scope: bool
    """does it speak of shapes, so that names of axes must be compared?"""


def _checked_function(function: Any) -> Any:
    if inspect.iscoroutinefunction(function):  # none of them speaks of shapes
        return _beartyped(function, _hints(function)).call
    if inspect.isgeneratorfunction(function):
        return jaxtyped(function, typechecker=beartype)
    first: tuple[Any, ...] = ()
    if _has_gate(function):
        if function.__code__ not in _gates:
            _gates[function.__code__] = _gate(function)
        (call, scope), first = _gates[function.__code__], (function,)
    else:
        call, scope = _beartyped(function, _hints(function))
    if not scope and not first:
        return call

    @wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not scope:
            return call(*first, *args, **kwargs)
        with jaxtyped("context"):
            return call(*first, *args, **kwargs)

    return checking


def _hints(function: FunctionType) -> dict[str, Any]:
    return {name: _resolved(hint, function) for name, hint in function.__annotations__.items()}


def _beartyped(function: Any, hints: dict[str, Any]) -> _Check:
    told, function.__annotations__ = function.__annotations__, hints
    try:
        return _Check(beartype(conf=AS_JAXTYPING)(function), any(map(_speaks_of_shapes, hints.values())))
    finally:
        function.__annotations__ = told


_gates: dict[CodeType, _Check] = {}
"""by the code of functions within functions, which are made anew all the time: a check that is made once"""


def _has_gate(function: Any) -> bool:
    """Is it a function within a function, with arguments of the plainest kind?"""
    parameters = inspect.signature(function).parameters.values()
    plain = all(one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty for one in parameters)
    return plain and "<locals>" in function.__qualname__


def _gate(function: Any) -> _Check:
    """Return a function that takes one with such a signature and its arguments, checks these, calls it with them, and
    checks what it returns.
    """
    names = ", ".join(inspect.signature(function).parameters)
    made: dict[str, Any] = {}
    exec(f"def gate(_function, {names}): return _function({names})", made)
    gate = made["gate"]
    gate.__qualname__, gate.__module__ = function.__qualname__, function.__module__
    return _beartyped(gate, _hints(function))


def _resolved(hint: Any, function: FunctionType) -> Any:
    """Return what a hint stands for; anything, where it names what is only imported for mypy, or defined further on."""

    def holder() -> None: ...

    holder.__annotations__ = {"value": hint}
    try:
        return get_type_hints(holder, function.__globals__, include_extras=True)["value"]
    except Exception:  # whatever a name that is not there yet leads to
        return Any


def _speaks_of_shapes(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    parts: Iterable[Any] = hint if isinstance(hint, list) else get_args(hint)
    return any(map(_speaks_of_shapes, parts))


class _Decorate(ast.NodeTransformer):
    """Puts ``checked`` next to the body of every function, and before all other decorators of a class."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self.generic_visit(node)
        first = next((place for place, child in enumerate(node.body) if not _stays_first(child)), len(node.body))
        node.body.insert(first, ast.Import([ast.alias("shapes", "_shapes")]))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list.append(_decorator(node))
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list.insert(0, _decorator(node))
        return node


def _stays_first(node: ast.stmt) -> bool:
    """Is it the module's docstring, or an import from the future?"""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _decorator(node: ast.AST) -> ast.expr:
    found = ast.Attribute(ast.Name("_shapes", ast.Load()), "checked", ast.Load())
    return ast.fix_missing_locations(ast.copy_location(found, node))


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        with patch("importlib._bootstrap_external.cache_from_source", partial(cache_from_source, optimization=CACHE)):
            return super().get_code(fullname)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = _Decorate().visit(ast.parse(decode_source(data), path))
        code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True, optimize=_optimize)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self._package:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec
