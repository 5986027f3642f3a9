"""The tables of the configuration: which settings each holds, and errors that name key, value and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError
from pydantic_core import to_jsonable_python

from fedpu.aggregation import AGGREGATIONS
from fedpu.augmentation import Augmentation
from fedpu.data import DataSettings
from fedpu.engine import ENGINES
from fedpu.errors import ConfigError, did_you_mean, warn
from fedpu.faults import Faults
from fedpu.labelling import Labelling
from fedpu.method import METHODS
from fedpu.models import MODELS
from fedpu.partition import PARTITIONS
from fedpu.priors import Priors
from fedpu.privacy import Privacy
from fedpu.registry import Registry, Settings, why_lost
from fedpu.tracking import Record


class EvaluationSettings(Settings):
    """When the global model is measured, and on what besides the test set. The model depends on neither, but for the
    data that clients hold out.
    """

    every: int = Field(1, ge=1, description="rounds between measurements; the last round is always measured")
    validation: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="share of its own data, labelled and unlabelled, that every client holds out of training: there "
        "the global model is scored without any hidden label; 0: none",
    )


@dataclass(frozen=True)
class Section:
    """A table of the configuration file: one class of settings, or several to choose from by a key."""

    name: str
    variants: Registry[Any]
    key: str | None = None
    """the key that chooses the variant: "name" or "kind\""""

    @property
    def default(self) -> type[Settings]:
        """The variant that is used when nothing is said."""
        variant: type[Settings] = self.variants[next(iter(self.variants))]
        return variant

    def fields(self) -> Iterator[tuple[str, type[Settings]]]:
        """Iterate over every key of the table, with the first built-in variant that has it."""
        seen: set[str] = set()
        for _, variant in self.variants.items():
            for key in variant.model_fields:
                if key not in seen:
                    seen.add(key)
                    yield key, variant

    def parse(self, values: object, like: Settings | None = None) -> Settings:
        """Return the settings of a table.

        Keys of the chosen variant are checked against that variant. A key that only other variants have plays no part:
        it is checked against those, and unless it has their default, as in a file with all keys, a warning says so.
        ``like`` are the settings that the table had before, whose class need not be found by its name again.
        """
        if not isinstance(values, Mapping):
            raise ConfigError(f"[{self.name}] must be a table of keys and values; got {values!r}.")
        if like is not None and _text(values) == _text(self.dump(like)):
            return like
        variant = self._variant(values, like)
        mine: dict[str, Any] = {}
        for key, value in values.items():
            field = variant.model_fields.get(key)
            if key == self.key:
                if field is not None and field.annotation is str:  # else the class has a name of its own, and no other
                    mine[key] = value
            elif field is not None:
                mine[key] = value
            else:
                self._check_unused(variant, values.get(self.key or "", ""), key, value)
        try:
            return _validated(variant, mine)
        except ValidationError as error:
            raise ConfigError(explain(error, variant, self.name)) from error

    def dump(self, settings: Settings) -> dict[str, Any]:
        """Return settings as a table of plain values, which :meth:`parse` reads back equal."""
        values = settings.model_dump(mode="json", exclude_none=True)
        if self.key is None:
            return values
        return {self.key: self._name_of(settings)} | {k: v for k, v in values.items() if k != self.key}

    def warn_if_lost(self, settings: Settings) -> None:
        """Say that settings can't be read back from a record, where their class can't be imported again."""
        if self.key is None or any(type(settings) is variant for _, variant in self.variants.items()):
            return
        reason = why_lost(type(settings))
        if reason is not None:
            warn(
                f"{self.name}.{self.key} = '{self._name_of(settings)}' is recorded, but the record can't be read back "
                f"elsewhere: {reason}. Put the class at the top level of a module of its own, and import it from there."
            )

    def without_leftovers(
        self, before: Mapping[str, Any], after: Mapping[str, Any], written: Container[str], like: Settings | None
    ) -> dict[str, Any]:
        """Return the table ``after`` an override chose another variant, without what was the former variant's.

        That are keys that the new variant lacks, and defaults of the former where the new one has its own. Keys that
        overrides have ``written`` stay.
        """
        try:
            old, new = self._variant(before, like), self._variant(after, like)
        except ConfigError:  # reported when the table is read
            return dict(after)

        def left_over(key: str, value: Any) -> bool:
            if key == self.key or key in written or key not in old.model_fields or new is old:
                return False
            if key not in new.model_fields:
                return True
            return _is_default(old, key, value) and not _is_default(new, key, value)

        return {key: value for key, value in after.items() if not left_over(key, value)}

    def _name_of(self, settings: Settings) -> str:
        assert self.key is not None
        return self.variants.name_of(type(settings), getattr(settings, self.key))

    def _variant(self, values: Mapping[str, Any], like: Settings | None = None) -> type[Settings]:
        if self.key is None or self.key not in values:
            return self.default
        chosen = values[self.key]
        if like is not None and chosen == self._name_of(like):
            return type(like)
        if not isinstance(chosen, str) or chosen not in self.variants:
            own = f", or your own as {self.variants.own}" if self.variants.own else ""
            raise ConfigError(
                f"{self.name}.{self.key} = {chosen!r} is not known.{did_you_mean(str(chosen), self.variants)} "
                f"It can be {', '.join(self.variants)}{own}."
            )
        variant: type[Settings] = self.variants[chosen]
        return variant

    def _check_unused(self, variant: type[Settings], chosen: str, key: str, value: Any) -> None:
        """Check a key that the chosen variant does not have against the variants that do."""
        others = {name: other for name, other in self.variants.items() if key in other.model_fields}
        if not others:
            near = did_you_mean(key, [*variant.model_fields, *dict(self.fields())])
            with_ = f" with {self.key} = '{chosen}'" if chosen else ""
            raise ConfigError(
                f"There is no setting '{self.name}.{key}'.{near} [{self.name}]{with_} has: "
                f"{', '.join(variant.model_fields)}."
            )
        problems = [self._problem(other, key, value) for other in others.values()]
        if None not in problems:
            raise ConfigError(problems[0])
        if not any(_is_default(other, key, value) for other in others.values()):
            chosen = chosen or next(iter(self.variants))
            warn(
                f"{self.name}.{key} = {value!r} plays no part with {self.name}.{self.key} = '{chosen}': it is a "
                f"setting of {' and '.join(others)}. Remove it, or choose {' or '.join(others)}."
            )

    def _problem(self, variant: type[Settings], key: str, value: Any) -> str | None:
        """Say what is wrong with one value, or return None."""
        try:
            _validated(variant, {key: value})
        except ValidationError as error:
            if any(part["loc"][:1] == (key,) for part in error.errors()):  # others may be absent, and are not asked for
                return explain(error, variant, self.name, key)
        return None


def _validated(variant: type[Settings], values: Mapping[str, Any]) -> Settings:
    # As JSON, strictly: a string is no number and true is no 1, while a list may still be a tuple.
    return variant.model_validate_json(_text(values), strict=True)


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(dict(values), default=str)


def _is_default(variant: type[Settings], key: str, value: Any) -> bool:
    default = variant.model_fields[key].get_default(call_default_factory=True)
    return bool(value == to_jsonable_python(default))


def explain(error: ValidationError, variant: type[Settings], table: str, only: str | None = None) -> str:
    """Return one sentence on the first wrong value: key, value, what is wrong with it, and what is allowed.

    ``only`` is the key of which it is to speak, where there are several.
    """
    first, *others = [part for part in error.errors() if only is None or part["loc"][:1] == (only,)]
    message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message.replace("Input should", "it should").rstrip(".")
    if not first["loc"]:  # a check of several keys together, of a user's class
        return f"[{table}] can't be used as it is: {message}."
    key = str(first["loc"][0])
    field = variant.model_fields[key]
    meaning = f" {table}.{key}: {field.description.rstrip('.')}." if field.description else ""
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return f"{table}.{key} must be given: it has no default.{meaning}"
    value = first["input"]
    if any(other["loc"][:1] == (key,) for other in others):  # a choice of forms, none of which fits
        message = "it has none of the forms that it may have"
    near = did_you_mean(value, re.findall(r"'([^']+)'", message)) if isinstance(value, str) else ""
    return f"{table}.{key} = {value!r} can't be used: {message}.{near}{meaning}"


SECTIONS: dict[str, Section] = {
    section.name: section
    for section in (
        Section("data", Registry("data", {"data": DataSettings})),
        Section("partition", PARTITIONS, "kind"),
        Section("labelling", Registry("labelling", {"labelling": Labelling})),
        Section("priors", Registry("priors", {"priors": Priors})),
        Section("augmentation", Registry("augmentation", {"augmentation": Augmentation})),
        Section("model", MODELS, "name"),
        Section("method", METHODS, "name"),
        Section("aggregation", AGGREGATIONS, "name"),
        Section("engine", ENGINES, "name"),
        Section("privacy", Registry("privacy", {"privacy": Privacy})),
        Section("faults", Registry("faults", {"faults": Faults})),
        Section("evaluation", Registry("evaluation", {"evaluation": EvaluationSettings})),
        Section("record", Registry("record", {"record": Record})),
    )
}
