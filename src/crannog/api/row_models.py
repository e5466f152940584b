"""Rows as Pydantic models, with validation errors in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crannog.errors import BadRows

if TYPE_CHECKING:
    from pydantic import BaseModel


def columns_of(model: type[BaseModel], columns: list[str]) -> list[str]:
    """Return the columns that the model has; the table may have more."""
    if model.model_config.get("extra") == "allow":
        return columns
    known = {field.serialization_alias or name for name, field in model.model_fields.items()}
    return [name for name in columns if name in known]


def validated(model: type[BaseModel], row: Any) -> BaseModel:
    """Return a row as a model; raises BadRows, naming the first field that does not fit."""
    from pydantic import ValidationError

    try:
        return model.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the row"
        raise BadRows(f"the row does not fit {model.__name__}: {where}: {first['msg']}") from None
