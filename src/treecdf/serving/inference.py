"""The Open Inference Protocol, version 2: the model's description, and tensors in and out.

Every covariate is an input of its own, FP64 or, for categories and dates, BYTES. An outcome may be an input too, for
the outputs log_density and cdf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treecdf._common.typing import Array
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.serving import answers
from treecdf.serving.bodies import check_fields, read_object
from treecdf.serving.limits import Refusal, listed, shown
from treecdf.serving.served import Served

VERSION = "1"  # of every model: a server holds one
_NUMBERS = {"FP64", "FP32", "FP16", *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))}
_TYPES = {*_NUMBERS, "BOOL", "BYTES"}
# Outputs that are given if none are asked for.
_DEFAULT_OUTPUTS = ({"name": "mean"}, {"name": "std"}, {"name": "interval"})


def describe_model(served: Served) -> dict[str, Any]:
    """The metadata of the model: names, types and shapes of inputs and outputs, -1 for any number."""
    types = {"number": "FP64", "category": "BYTES", "date": "BYTES"}
    inputs = [
        {"name": name, "datatype": types[kind], "shape": [-1]}
        for name, kind in zip(served.columns, served.kinds, strict=True)
    ]
    own = [] if len(served.outcomes) == 1 else [len(served.outcomes)]
    shapes = {"mean": [], "std": [], "interval": [2], "quantiles": [-1], "samples": [-1], "cdf": []}
    outputs = [{"name": name, "datatype": "FP64", "shape": [-1, *more, *own]} for name, more in shapes.items()]
    outputs.append({"name": "log_density", "datatype": "FP64", "shape": [-1]})
    return {
        "name": served.name,
        "versions": [VERSION],
        "platform": "treecdf",
        "inputs": inputs
        + [{"name": name, "datatype": "FP64", "shape": [-1]} for name in served.outcomes if name not in served.columns],
        "outputs": outputs,
    }


def infer(served: Served, body: bytes) -> dict[str, Any]:
    """The tensors of the answer to a request."""
    given = read_object(body)
    check_fields(given, ("id", "parameters", "inputs", "outputs"))
    name = given.get("id")
    if name is not None and not (isinstance(name, str) and len(name) <= 200):
        raise Refusal(f"id: expected a text of at most 200 characters; got {shown(name)}")
    inputs = _read_inputs(served, given.get("inputs"))
    outcomes = {key: inputs.pop(key) for key in served.outcomes if key in inputs and key not in served.columns}
    table = served.table_of_columns(inputs)
    points = _points(served, outcomes, len(table)) if outcomes else None
    distribution = served.distribution(table)
    shared = _read_parameters(given.get("parameters"), "parameters")
    made = []
    for wanted in _read_outputs(given.get("outputs")):
        parameters = {**shared, **_read_parameters(wanted.get("parameters"), f"output {shown(wanted['name'])}")}
        values = _OUTPUTS[wanted["name"]](_Asked(served, distribution, points, parameters))
        made.append({"name": wanted["name"], "datatype": "FP64", "shape": list(values.shape), "data": values.ravel()})
    answer = {"model_name": served.name, "model_version": VERSION, "outputs": made, "parameters": {}}
    notes = served.notes(table)
    if notes:
        answer["parameters"] = {"notes": "; ".join(notes)}
    return answer if name is None else {**answer, "id": name}


# Inputs


def _read_inputs(served: Served, given: Any) -> dict[str, list[Any]]:
    """Values of the tensors, each (n,) or (n, 1), by their names."""
    if not isinstance(given, list):
        raise Refusal(f"inputs: expected a list of tensors; got {shown(given)}")
    if len(given) > len(served.columns) + len(served.outcomes):
        raise Refusal(f"inputs: expected one for each of {listed(served.columns)}; got {len(given)}")
    found: dict[str, list[Any]] = {}
    for k, tensor in enumerate(given):
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise Refusal(f"input {k}: expected an object with a name")
        where = f"input {shown(tensor['name'])}"
        check_fields(tensor, ("name", "shape", "datatype", "data", "parameters"), where)
        if tensor["name"] in found:
            raise Refusal(f"{where} comes twice")
        found[tensor["name"]] = _read_tensor(tensor, where)
    return found


def _read_tensor(tensor: Mapping[str, Any], where: str) -> list[Any]:
    """The values (n,) of a tensor of shape (n,) or (n, 1)."""
    kind = tensor.get("datatype")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise Refusal(f"{where}: expected a datatype such as FP64 or BYTES; got {shown(kind)}")
    shape, data = tensor.get("shape"), tensor.get("data")
    if not isinstance(shape, list) or not shape or type(shape[0]) is not int or shape[1:] not in ([], [1]):
        raise Refusal(f"{where}: expected the shape [n] or [n, 1]; got {_shape(shape)}")
    if not isinstance(data, list):
        raise Refusal(f"{where}: expected data as a list, in this JSON; got {shown(data)}")
    if data and all(isinstance(value, list) and len(value) == 1 for value in data):
        data = [value[0] for value in data]
    if len(data) != shape[0]:
        raise Refusal(f"{where}: the shape says {shown(shape[0])} values and there are {len(data)}")
    return data


def _shape(shape: Any) -> str:
    """A shape for a refusal."""
    if not isinstance(shape, list):
        return shown(shape)
    return f"[{', '.join(shown(size) for size in shape[:4])}{', ...' if len(shape) > 4 else ''}]"


def _points(served: Served, outcomes: Mapping[str, list[Any]], n: int) -> Array:
    """Outcomes (n, 1, d) of the tensors that have their names."""
    for name in served.outcomes:
        if len(outcomes.get(name, ())) != n:
            raise Refusal(f"input {shown(name)}: expected {n} outcomes, one for each row")
    rows = [dict(zip(outcomes, values, strict=True)) for values in zip(*outcomes.values(), strict=True)]
    return served.read_outcomes(rows, n)[0]


# Outputs


def _read_outputs(given: Any) -> list[dict[str, Any]]:
    """The requested outputs, each known and only once."""
    if given is None:
        return list(_DEFAULT_OUTPUTS)
    if not isinstance(given, list) or not given:
        raise Refusal(f"outputs: expected a list of at least one object; got {shown(given)}")
    names = set()
    for wanted in given:
        if not isinstance(wanted, dict) or not isinstance(wanted.get("name"), str) or wanted["name"] not in _OUTPUTS:
            raise Refusal(f"outputs: expected objects with one of the names {listed(tuple(_OUTPUTS))}")
        check_fields(wanted, ("name", "parameters"), f"output {shown(wanted['name'])}")
        if wanted["name"] in names:
            raise Refusal(f"output {shown(wanted['name'])} comes twice")
        names.add(wanted["name"])
    return given


def _read_parameters(given: Any, where: str) -> dict[str, Any]:
    """Parameters of a request or an output; unknown ones are ignored, as the protocol requires."""
    if given is not None and not isinstance(given, dict):
        raise Refusal(f"{where}: expected parameters as an object; got {shown(given)}")
    return given or {}


class _Asked:
    """The numbers that outputs are made of, computed when needed."""

    def __init__(
        self, served: Served, distribution: ConditionalDistribution, points: Array | None, parameters: dict[str, Any]
    ) -> None:
        self.served, self.distribution, self.parameters = served, distribution, parameters
        self._points = points

    def points(self) -> Array:
        """Outcomes (n, 1, d)."""
        if self._points is None:
            raise Refusal(f"expected inputs with the outcomes {listed(self.served.outcomes)}, for densities")
        return self._points

    def levels(self) -> Array:
        """Levels (m,): a number, or a text of several, as parameters of the protocol cannot be lists."""
        given = self.parameters.get("levels", list(answers.DEFAULT_LEVELS))
        if isinstance(given, str):
            words = given.replace(",", " ").split()
            try:
                given = [float(word) for word in words[: self.served.limits.levels + 1]]
            except ValueError:
                raise Refusal(f"levels: expected numbers with spaces between; got {shown(given)}") from None
        levels = answers.read_levels(given if isinstance(given, list) else [given], self.served.limits)
        answers.check_size(self.served.limits, len(self.distribution) * len(levels) * len(self.served.outcomes))
        return levels

    def samples(self) -> Array:
        """Draws (n, k, d)."""
        n_draws = answers.read_draws(self.parameters.get("draws", answers.DEFAULT_DRAWS), self.served.limits)
        answers.check_size(self.served.limits, len(self.distribution) * n_draws * len(self.served.outcomes))
        return answers.samples(self.distribution, n_draws, answers.read_seed(self.parameters.get("seed")))


def _plain(values: Array) -> Array:
    """Values (..., d) without the last axis if there is one outcome."""
    return values[..., 0] if values.shape[-1] == 1 else values


_OUTPUTS: dict[str, Callable[[_Asked], Array]] = {
    "mean": lambda asked: _plain(answers.mean_and_std(asked.distribution)[0]),
    "std": lambda asked: _plain(answers.mean_and_std(asked.distribution)[1]),
    "interval": lambda asked: _plain(
        answers.intervals(asked.distribution, answers.read_level(asked.parameters.get("level", answers.DEFAULT_LEVEL)))
    ),
    "quantiles": lambda asked: _plain(answers.quantiles(asked.distribution, asked.levels())),
    "samples": lambda asked: _plain(asked.samples()),
    "cdf": lambda asked: _plain(answers.cdf(asked.distribution, asked.points())[:, 0]),
    "log_density": lambda asked: answers.log_density(asked.distribution, asked.points())[:, 0],
}
