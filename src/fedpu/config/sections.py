"""The tables of the configuration: which settings each holds, and errors that name key, value and remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from fedpu.aggregation import AGGREGATIONS
from fedpu.data import DataSettings
from fedpu.engine import ENGINES
from fedpu.errors import ConfigError, did_you_mean
from fedpu.labelling import Labelling
from fedpu.method import METHODS
from fedpu.models import MODELS, OwnModel
from fedpu.partition import PARTITIONS
from fedpu.priors import Priors
from fedpu.privacy import Privacy
from fedpu.registry import Registry, Settings


class EvaluationSettings(Settings):
    """When the global model is measured on the test set; the model does not depend on it."""

    every: int = Field(1, ge=1, description="rounds between measurements; the last round is always measured")


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
        """Iterate over every key of the table, with the first variant that has it."""
        seen: set[str] = set()
        for _, variant in self.variants.items():
            for key in variant.model_fields:
                if key not in seen:
                    seen.add(key)
                    yield key, variant

    def parse(self, values: object) -> Settings:
        """Return the settings of a table. Keys of variants that were not chosen are checked, and play no part."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"[{self.name}] must be a table of keys and values; got {values!r}.")
        owners = dict(self.fields())
        for key, value in values.items():
            if key not in owners:
                known = ", ".join(owners)
                raise ConfigError(
                    f"There is no setting '{self.name}.{key}'.{did_you_mean(key, owners)} [{self.name}] has: {known}."
                )
            if key != self.key:
                self._validate(owners[key], {key: value})
        variant = self._variant(values)
        return self._validate(variant, {k: v for k, v in values.items() if k in variant.model_fields})

    def _variant(self, values: Mapping[str, Any]) -> type[Settings]:
        if self.key is None or self.key not in values:
            return self.default
        chosen = values[self.key]
        if self.name == "model" and isinstance(chosen, str) and ":" in chosen:
            return OwnModel
        if not isinstance(chosen, str) or chosen not in self.variants:
            own = ", or your own as module:function" if self.name == "model" else ""
            raise ConfigError(
                f"{self.name}.{self.key} = {chosen!r} is not known.{did_you_mean(str(chosen), self.variants)} "
                f"It can be {', '.join(self.variants)}{own}."
            )
        variant: type[Settings] = self.variants[chosen]
        return variant

    def _validate(self, variant: type[Settings], values: Mapping[str, Any]) -> Settings:
        try:
            # As JSON, strictly: a string is no number and true is no 1, while a list may still be a tuple.
            return variant.model_validate_json(json.dumps(dict(values), default=str), strict=True)
        except ValidationError as error:
            raise ConfigError(explain(error, variant, self.name)) from error


def explain(error: ValidationError, variant: type[Settings], table: str) -> str:
    """Return one sentence on the first wrong value: key, value, what is wrong with it, and what is allowed."""
    first, *others = error.errors()
    key = str(first["loc"][0])
    field = variant.model_fields[key]
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    value = first["input"]
    if any(other["loc"][0] == key for other in others):  # a choice of forms, none of which fits
        message = "it has none of the forms that it may have"
    near = did_you_mean(value, re.findall(r"'([^']+)'", message)) if isinstance(value, str) else ""
    meaning = f" {table}.{key}: {field.description.rstrip('.')}." if field.description else ""
    return f"{table}.{key} = {value!r} can't be used: {message}.{near}{meaning}"


SECTIONS: dict[str, Section] = {
    section.name: section
    for section in (
        Section("data", Registry("data", {"data": DataSettings})),
        Section("partition", PARTITIONS, "kind"),
        Section("labelling", Registry("labelling", {"labelling": Labelling})),
        Section("priors", Registry("priors", {"priors": Priors})),
        Section("model", MODELS, "name"),
        Section("method", METHODS, "name"),
        Section("aggregation", AGGREGATIONS, "name"),
        Section("engine", ENGINES, "name"),
        Section("privacy", Registry("privacy", {"privacy": Privacy})),
        Section("evaluation", Registry("evaluation", {"evaluation": EvaluationSettings})),
    )
}
