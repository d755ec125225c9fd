"""How synthetic samples differ from real ones, always within infants whom the generator did not see.

`judge` works on one fold: figures that need pairs of samples or a classifier. What belongs to a single sample
(`signature`) is stored, and pooled over the folds of a seed by `pooled`.
"""

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import rankdata, spearmanr

from benchmarks.microbiome.data import Samples

N_TOP = 30  # most abundant taxa, whose rank correlations are compared
N_DECILES = 10
N_AGE_GROUPS = 6  # of as many samples each, for diversity
N_DEPTH_GROUPS = 3  # of as many samples each, for what pairs or correlations are taken of
NEAR_DAYS = 60  # samples of an infant no further apart are alike
SIGNATURES = ("shannon", "richness", "smallest", "ties", "singletons", "largest", "top_four", "median")


def judge(train: Samples, real: Samples, drawn: np.ndarray) -> tuple[dict, dict]:
    """Figures of drawn compositions or counts (n, taxa), one for each real left-out sample; what is stored beside."""
    y, other = real.y, shares(drawn)
    distances = squareform(pdist(y, "braycurtis")), squareform(pdist(other, "braycurtis"))
    metrics = {"auc": nested_auc(real, drawn)}
    metrics |= correlation_slopes(train.y, real, other)
    metrics |= neighbours(train.y, y, other)
    metrics |= subjects(real, *distances)
    metrics["spread_by_age"] = spread_by_age(real, *distances)
    zeros = np.mean(y == 0, axis=0), np.mean(other == 0, axis=0)
    metrics["zeros_off"] = float(np.abs(zeros[0] - zeros[1]).mean())
    metrics["mean_ratio"] = [float(part) for part in other.mean(axis=0)[:4] / y.mean(axis=0)[:4]]
    details = {"age": real.age[:, 0].tolist(), "depth": real.depth.tolist()}
    details |= {f"real_{name}": values.tolist() for name, values in signature(real.counts).items()}
    details |= {f"drawn_{name}": values.tolist() for name, values in signature(drawn).items()}
    return metrics, details | {"drawn_depth": np.sum(drawn, axis=1).tolist()}


def shares(y: np.ndarray) -> np.ndarray:
    """Rows divided by their sums."""
    return y / y.sum(axis=1, keepdims=True)


def nested_auc(real: Samples, drawn: np.ndarray, n_trees: int = 300) -> float:
    """How well a random forest tells real from synthetic, ages and compositions given; .5 is not at all.

    It learns and is judged within the left-out infants of one generator, and is judged on infants it did not learn
    from: neither it nor the generator has seen them.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_predict

    both = np.vstack([np.hstack([real.age, real.y]), np.hstack([real.age, shares(drawn)])])
    label = np.repeat([1, 0], len(drawn))
    forest = RandomForestClassifier(n_trees, min_samples_leaf=2, random_state=0)
    infants = np.concatenate([real.infant, real.infant])
    chance = cross_val_predict(forest, both, label, groups=infants, cv=GroupKFold(5), method="predict_proba")
    return float(roc_auc_score(label, chance[:, 1]))


def age_groups(age: np.ndarray, n_groups: int) -> list[np.ndarray]:
    """Rows of groups of equally many samples, the youngest first."""
    return np.array_split(np.argsort(age.ravel(), kind="stable"), n_groups)


def correlation_slopes(train: np.ndarray, real: Samples, drawn: np.ndarray) -> dict[str, float]:
    """Slopes of synthetic on real correlations of pairs of taxa: rank correlations of the most abundant, presences.

    Noise in the real correlations pulls a slope towards 0: what is reached by samples of other real infants is the
    measure (method `real`).
    """
    top = np.argsort(-train.mean(axis=0), kind="stable")[:N_TOP]
    pair = np.triu_indices(len(top), 1)
    a, b = real.y[:, top], drawn[:, top]
    within = [np.empty_like(a), np.empty_like(b)]
    for rows in age_groups(real.age, N_DECILES):
        for part, y in zip(within, (a, b), strict=True):
            part[rows] = rankdata(y[rows], axis=0) / len(rows)
            part[rows] -= part[rows].mean(axis=0)
    prevalence = (train > 0).mean(axis=0)
    some = np.flatnonzero((prevalence > 0.1) & (prevalence < 0.9))
    presence = [(y[:, some] > 0).astype(float) for y in (real.y, drawn)]
    return {
        "slope_within": _slope(*(_correlations(part)[pair] for part in within)),
        "slope_overall": _slope(*(_correlations(rankdata(part, axis=0))[pair] for part in (a, b))),
        "slope_presence": _slope(*(_correlations(part)[np.triu_indices(len(some), 1)] for part in presence)),
    }


def _correlations(values: np.ndarray) -> np.ndarray:
    """Correlations of columns; 0 with a constant."""
    z = values - values.mean(axis=0)
    scale = np.sqrt((z**2).sum(axis=0))
    z = z / np.where(scale > 0, scale, np.inf)
    return z.T @ z


def _slope(real: np.ndarray, drawn: np.ndarray) -> float:
    """Slope of a line through points; NaN of fewer than two."""
    if len(real) < 2:
        return float("nan")
    centred = real - real.mean()
    return float(centred @ (drawn - drawn.mean()) / (centred @ centred))


def neighbours(train: np.ndarray, real: np.ndarray, drawn: np.ndarray) -> dict[str, float]:
    """Bray-Curtis distances to the nearest training sample, 5 % quantiles: a generator that remembers is too near."""
    nearest = [cdist(part, train, "braycurtis").min(axis=1) for part in (real, drawn)]
    return {name: float(np.quantile(d, 0.05)) for name, d in zip(("near_real", "near_drawn"), nearest, strict=True)}


def subjects(real: Samples, distances: np.ndarray, drawn: np.ndarray) -> dict[str, float]:
    """Mean Bray-Curtis distance of two samples of one infant at most 60 days apart."""
    same = real.infant[:, None] == real.infant
    pairs = np.triu(same & (np.abs(real.age - real.age.T) <= NEAR_DAYS), 1)
    return {"subject_real": float(distances[pairs].mean()), "subject_drawn": float(drawn[pairs].mean())}


def spread_by_age(real: Samples, distances: np.ndarray, drawn: np.ndarray) -> list[list[float]]:
    """Mean Bray-Curtis distances of samples of different infants in groups of age: real, synthetic."""
    lines = []
    for rows in age_groups(real.age, N_DEPTH_GROUPS):
        pairs = np.triu(real.infant[rows][:, None] != real.infant[rows], 1)
        lines.append([float(part[np.ix_(rows, rows)][pairs].mean()) for part in (distances, drawn)])
    return lines


def signature(y: np.ndarray) -> dict[str, np.ndarray]:
    """What can be told of a sample by one number, (n,) each, of compositions or counts y (n, taxa)."""
    p = shares(y)
    positive = np.where(y > 0, y, np.nan)
    smallest = np.nanmin(positive, axis=1)
    ordered = np.sort(y, axis=1)
    tied = ((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] > 0)).sum(axis=1)
    richness = (y > 0).sum(axis=1)
    return {
        "shannon": -np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0).sum(axis=1),
        "richness": richness.astype(float),
        "smallest": smallest / y.sum(axis=1),
        "ties": tied / richness,
        "singletons": (y == smallest[:, None]).sum(axis=1) / richness,
        "largest": p.max(axis=1),
        "top_four": p[:, :4].sum(axis=1),
        "median": np.nanmedian(np.log(positive / y.sum(axis=1, keepdims=True)), axis=1),
    }


def pooled(folds: list[dict]) -> dict:
    """Figures of all folds of a seed together, from what `judge` stored of each sample."""
    from sklearn.metrics import roc_auc_score

    all_of = {key: np.concatenate([np.asarray(fold[key]) for fold in folds]) for key in folds[0]}
    label = np.repeat([1, 0], len(all_of["age"]))
    detectors = {}
    for name in SIGNATURES:
        found = roc_auc_score(label, np.concatenate([all_of[f"real_{name}"], all_of[f"drawn_{name}"]]))
        detectors[name] = float(max(found, 1 - found))
    bias, reads, richness = [], [], []
    for rows in age_groups(all_of["age"], N_AGE_GROUPS):
        bias.append(float(all_of["drawn_shannon"][rows].mean() - all_of["real_shannon"][rows].mean()))
        richness.append(float(all_of["drawn_richness"][rows].mean() - all_of["real_richness"][rows].mean()))
    for rows in age_groups(all_of["age"], N_DEPTH_GROUPS):
        pair = [(all_of["depth"], "real_richness"), (all_of["drawn_depth"], "drawn_richness")]
        reads.append([float(spearmanr(_varied(depth[rows]), all_of[name][rows])[0]) for depth, name in pair])
    return {"detectors": detectors, "shannon": bias, "richness": richness, "reads": reads}


def _varied(depth: np.ndarray) -> np.ndarray:
    """Depths for a rank correlation; compositions have none, and their order says nothing."""
    return depth if np.ptp(depth) > 1e-9 else np.arange(len(depth)) * 7919 % len(depth)
